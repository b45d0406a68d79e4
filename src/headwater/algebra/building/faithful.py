"""Functions that sqlglot reads but would write for Spark as something else.

Found by writing the examples in Spark's own documentation of its functions, and comparing the results.
"""

from __future__ import annotations

from sqlglot import exp


def faithful(node: exp.Expr) -> exp.Expr:
    """The same call, so that its text means to Spark what was written."""
    match node:
        case exp.PercentileCont():  # would become an approximation
            return _call("percentile_cont", node.this)
        case exp.PercentileDisc():
            return _call("percentile_disc", node.this)
        case exp.GroupConcat() if node.args.get("separator") is None:  # would get a comma
            node.set("separator", exp.Literal.string(""))
            return node
        case exp.ArgMax() if node.args.get("count") is not None:  # would lose the count
            return _call("max_by", node.this, node.expression, node.args["count"])
        case exp.ArgMin() if node.args.get("count") is not None:
            return _call("min_by", node.this, node.expression, node.args["count"])
        case exp.ToChar() if node.args.get("format") is not None:  # would lose the format
            return _call("to_char", node.this, node.args["format"])
        case exp.ParseJSON():  # would vanish
            return _call("parse_json", node.this)
        case exp.UnixDate():  # would be a bigint
            return _call("unix_date", node.this)
        case exp.StrPosition() if node.args.get("occurrence") is not None:
            return _call(
                "instr", node.this, *(node.args[part] for part in ("substr", "position", "occurrence"))
            )
        case exp.Cast() if node.to.this is exp.DType.TIME:  # would become a timestamp
            node.set("to", exp.DataType(this=exp.DType.USERDEFINED, kind="TIME"))
            return node
        case exp.Anonymous() if str(node.this).lower() == "now":
            return exp.CurrentTimestamp()
        case _:
            return node


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])
