"""x"""


def known(text: str) -> str:
    return text
