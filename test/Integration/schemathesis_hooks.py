"""What schemathesis cannot know of /openapi.json: how many tokens a text has, and which settings need each other (clients.py)."""
import json

import schemathesis

# Settings of beams, and their values without a search.
WITHOUT_BEAMS = {"num_beams": 1, "num_beam_groups": 1, "diversity_penalty": 0, "length_penalty": 1, "early_stopping": False}


@schemathesis.hook
def filter_body(context, body):
    """Leaves out requests that may be longer than the context."""
    return not isinstance(body, (dict, list)) or len(json.dumps(body)) < 1000


@schemathesis.hook
def filter_case(context, case):
    """Leaves out searches with beams, whose settings errors_server.py tries."""
    body = case.body
    return not isinstance(body, dict) or all(body.get(name) in (None, value) for name, value in WITHOUT_BEAMS.items())
