"""What the Python package takes of the project's own tables: the declarations of qwenrt.h for ctypes, and the fields of SamplingParams.

wheel.py writes both modules into the wheel, so that each declaration stands once. `compiler` is clang, whose syntax tree knows the
header, and whose preprocessor expands the tables.
"""
import ast
import json
import re
import subprocess

NUMBERS = {"int": "c_int", "int32_t": "c_int32", "int64_t": "c_int64", "uint32_t": "c_uint32", "uint64_t": "c_uint64", "size_t": "c_size_t",
           "float": "c_float", "double": "c_double", "uint8_t": "c_uint8", "int8_t": "c_int8", "uint16_t": "c_uint16", "int16_t": "c_int16",
           "unsigned char": "c_uint8"}
# The Python types of their values.
VALUES = {"c_float": "float", "c_double": "float"}


def tree_of(compiler, header):
    """The declarations of the header as clang's JSON."""
    done = subprocess.run([compiler, "-x", "c", "-fsyntax-only", "-Xclang", "-ast-dump=json", header], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"declarations.py: {compiler} cannot read {header}: {done.stderr.splitlines()[-1]}")
    return [node for node in json.loads(done.stdout)["inner"] if not node.get("isImplicit")]


class Types:
    """Names of ctypes for types of C."""

    def __init__(self, structs):
        self.structs = structs

    def of(self, text):
        """The type of a value, a member or an argument."""
        text = re.sub(r"\b(const|struct)\b", "", text).strip()
        function = re.fullmatch(r"(.+?)\s*\(\*\)\((.*)\)", text)
        if function:
            return self.function(*function.groups())
        if not text.endswith("*"):
            return text if text in self.structs else "None" if text == "void" else NUMBERS[text]
        pointed = text[:-1].strip()
        if pointed == "char":
            return "c_char_p"
        # The program knows no member of an opaque struct.
        if pointed == "void" or (pointed.startswith("qwen_") and pointed not in self.structs):
            return "c_void_p"
        return f"POINTER({self.of(pointed)})"

    def function(self, result, arguments):
        parts = [self.of(part) for part in arguments.split(",") if part.strip() not in ("", "void")]
        return f"CFUNCTYPE({', '.join([self.of(result), *parts])})"

    def value(self, name):
        """The Python type of a member."""
        if name in self.structs:
            return name
        if name == "c_char_p":
            return "bytes | None"
        return VALUES.get(name, "Any" if "(" in name or name == "c_void_p" else "int")


def structs_of(tree):
    """Members of each struct in order, as pairs of name and C type."""
    return {node["name"]: [(field["name"], field["type"]["qualType"]) for field in node["inner"] if field["kind"] == "FieldDecl"]
            for node in tree if node["kind"] == "RecordDecl" and node.get("name", "").startswith("qwen_") and node.get("completeDefinition")}


def constants_of(tree):
    """Values of the enumerators."""
    constants, last = {}, -1
    for node in tree:
        for each in node["inner"] if node["kind"] == "EnumDecl" else []:
            value = next((part["value"] for part in each.get("inner", []) if "value" in part), None)
            constants[each["name"]] = last = int(value) if value is not None else last + 1
        last = -1
    return constants


def functions_of(tree):
    """Result and arguments of each function, as C types."""
    found = {}
    for node in tree:
        if node["kind"] == "FunctionDecl" and node["name"].startswith("qwen_"):
            arguments = [part["type"]["qualType"] for part in node.get("inner", []) if part["kind"] == "ParmVarDecl"]
            found[node["name"]] = (node["type"]["qualType"].split("(", 1)[0].strip(), arguments)
    return found


def header_module(compiler, header):
    """The source of the module that declares the header for ctypes."""
    tree = tree_of(compiler, header)
    structs = structs_of(tree)
    types = Types(structs)
    lines = ['"""The declarations of qwenrt.h, made by python/declarations.py."""', "from ctypes import (CFUNCTYPE, POINTER, Structure, " +
             ", ".join(sorted({*NUMBERS.values(), "c_char_p", "c_void_p"})) + ")", "from typing import Any", ""]
    lines += [f"{name} = {value}" for name, value in constants_of(tree).items()]
    for name, members in structs.items():
        lines += ["", "", f"class {name}(Structure):"]
        # A text with a size has no end.
        sizes = {member.removesuffix("_size") for member, _ in members if member.endswith("_size")}
        named = [(member, "c_void_p" if member in sizes and "char" in text else types.of(text)) for member, text in members]
        lines += [f"    {member}: {types.value(type_)}" for member, type_ in named]
        lines += ["    _fields_ = ["] + [f'        ("{member}", {type_}),' for member, type_ in named] + ["    ]"]
    lines += ["", "", "# Result and arguments of each function.", "FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {"]
    for name, (result, arguments) in functions_of(tree).items():
        lines.append(f'    "{name}": ({types.of(result)}, [{", ".join(types.of(each) for each in arguments)}]),')
    return "\n".join(lines + ["}", ""])


# The classes of fields of SamplingParams, their tables in include/qwen/ABI, and how a row begins.
FIELDS = (("SamplerFields", "SamplerOptions.def", "QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, Valid, Needed, Help)",
           "Options that change what is drawn; None is what the model's authors recommend."),
          ("BeamFields", "BeamOptions.def", "QWEN_BEAM_OPTION(Type, Field, Name, Default, Least, Most, Help)",
           "Options of a beam search (docs/beams.md)."))


def fields_module(compiler, folder):
    """The source of the module with a field for each row of the tables of options."""
    lines = ['"""The options of the sampler and of a beam search, made by python/declarations.py."""', "import dataclasses"]
    for name, table, row, help_text in FIELDS:
        text = f'#define {row} QWEN_ROW (#Type, #Name, Help) QWEN_END\n#include "{folder / table}"\n'
        done = subprocess.run([compiler, "-x", "c++", "-E", "-P", "-"], input=text, capture_output=True, text=True, check=True)
        rows = [ast.literal_eval(found) for found in re.findall(r"QWEN_ROW (.*?) QWEN_END", done.stdout)]
        if not rows:
            raise SystemExit(f"declarations.py: {table} has no rows")
        lines += ["", "", "@dataclasses.dataclass(kw_only=True)", f"class {name}:", f'    """{help_text}"""', ""]
        for type_, option, text in rows:
            lines += [f"    {option}: {VALUES.get(NUMBERS[type_], 'int')} | None = None", f'    """{text}."""']
    return "\n".join(lines + [""])
