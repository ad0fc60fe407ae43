"""The sizes of a dense model in a GGUF file, for the scripts of the peers, which run in environments of their own."""


def add_sizes(writer, config):
    """Writes them from `config`, a config.json, by `writer`, a gguf.GGUFWriter."""
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
