"""A module and its stub, which is read as text: names, parameters, their kinds and defaults are the same."""
import ast
import inspect
import pathlib

KINDS = {"posonlyargs": inspect.Parameter.POSITIONAL_ONLY, "args": inspect.Parameter.POSITIONAL_OR_KEYWORD,
         "kwonlyargs": inspect.Parameter.KEYWORD_ONLY}


def of_stub(function, skip=0):
    """Its parameters but for the first ones: name, kind, and the default's text."""
    a = function.args
    plain = [(p.arg, KINDS[kind]) for kind in ("posonlyargs", "args") for p in getattr(a, kind)]
    found = [(*p, default and ast.unparse(default)) for p, default in zip(plain, [None] * (len(plain) - len(a.defaults)) + a.defaults)]
    found += [(a.vararg.arg, inspect.Parameter.VAR_POSITIONAL, None)] if a.vararg else []
    found += [(p.arg, KINDS["kwonlyargs"], default and ast.unparse(default)) for p, default in zip(a.kwonlyargs, a.kw_defaults)]
    found += [(a.kwarg.arg, inspect.Parameter.VAR_KEYWORD, None)] if a.kwarg else []
    return found[skip:]


def of_python(function):
    return [(p.name, p.kind, None if p.default is p.empty else repr(p.default))
            for p in inspect.signature(function).parameters.values() if p.name != "self"]


def check_class(stub, own):
    """A named tuple has these fields; another class these methods, and no others that are public."""
    fields = [node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)]
    methods = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    if hasattr(own, "_fields"):
        assert list(own._fields) == fields, stub.name
        return
    for name, node in methods.items():
        assert of_stub(node, 1) == of_python(getattr(own, name)), f"{stub.name}.{name}"
    assert {name for name, member in vars(own).items() if callable(member) and name[0] != "_"} == set(methods), stub.name
    for field in fields:
        assert f"self.{field}" in inspect.getsource(own), f"{stub.name}.{field}"


def check(module, extra=()):
    """extra: names that __all__ leaves out."""
    body = ast.parse(pathlib.Path(module.__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    values = {node.target.id: node.annotation for node in body if isinstance(node, ast.AnnAssign)}
    imported = {name.asname for node in body if isinstance(node, ast.ImportFrom) for name in node.names if name.asname}
    there = {name for name in (*classes, *functions, *values, *imported) if name[0] != "_"}
    names = set(module.__all__) if hasattr(module, "__all__") else {n for n in vars(module) if n.startswith("conv")}
    assert there == names | set(extra)
    for name in there:
        own = getattr(module, name)
        if name in functions:
            assert of_stub(functions[name]) == of_python(own), name
        elif name in classes:
            check_class(classes[name], own)
        elif name in values:  # of a class with a call alone
            call, = (node for node in classes[values[name].id].body if isinstance(node, ast.FunctionDef))
            assert of_stub(call, 1) == of_python(own), name
    return classes
