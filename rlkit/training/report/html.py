"""HTML as a tree of elements: text that is put into one is shown, never read as tags."""

import base64
import hashlib
import json
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

Child = Element | str


def element(tag: str, *children: Child, **attributes: str) -> Element:
    """An element; `class_` and `aria_label` stand for the attributes class and aria-label."""
    names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    return append(Element(tag, names), *children)


def append(parent: Element, *children: Child) -> Element:
    """Adds children to an element, and returns it."""
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + child
        else:
            parent.text = (parent.text or "") + child
    return parent


def code(tag: str, source: str, **attributes: str) -> Element:
    """A script or style, whose source no browser takes for the end of the element."""
    assert "</" not in source, "the source would end its own element"
    return element(tag, source, **attributes)


def data(value: Any, name: str) -> Element:
    """Plain data for scripts, by the id `name`."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return code("script", text, id=name, type="application/json")


def source_hash(source: str) -> str:
    """What a content security policy calls a script or style that it lets in."""
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def document(root: Element) -> bytes:
    """The file. Names from a file system may hold bytes that are no text, which become "?"."""
    text = ElementTree.tostring(root, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{text}\n".encode(errors="replace")
