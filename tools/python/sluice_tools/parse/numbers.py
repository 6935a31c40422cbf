"""Numbers as spreadsheets of other locales write them."""

import re

import pandas as pd

_GROUPING = "['’  _\\s]"  # what groups digits and is never a decimal sign
_NOTHING = ("", "None", "none", "NaN", "nan", "N/A", "-")


def _is_grouped(texts: pd.Series, sign: str) -> bool:
    return bool(texts.str.fullmatch(rf"[-+]?\d{{1,3}}(?:{re.escape(sign)}\d{{3}})+").all())


def decimal_sign(texts: pd.Series, whole: bool) -> str:
    """'.' or ',', whichever marks decimals in these texts. `whole`: they should be whole numbers,
    so that 1.234 is twelve hundred and some."""
    texts = texts.str.replace(_GROUPING, "", regex=True)
    both = texts[texts.str.contains(",", regex=False) & texts.str.contains(".", regex=False)]
    if len(both):
        return max(".,", key=both.iloc[0].rfind)
    for sign, other in ((",", "."), (".", ",")):
        having = texts[texts.str.contains(sign, regex=False)]
        if len(having):
            grouped = having.str.count(re.escape(sign)).max() > 1 or (whole and _is_grouped(having, sign))
            return other if grouped else sign
    return "."


def to_numbers(texts: pd.Series, decimal: str) -> pd.Series:
    """Floats; NaN where there is no number."""
    thousands = "," if decimal == "." else "."
    plain = texts.str.replace(_GROUPING, "", regex=True).str.replace(thousands, "", regex=False)
    return pd.to_numeric(plain.str.replace(decimal, ".", regex=False), errors="coerce")
