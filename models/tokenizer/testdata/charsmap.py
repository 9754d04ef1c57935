"""Writes SentencePiece's table of replacements: a double-array trie of the keys, and the texts."""
import base64
import struct


def charsmap(replacements):
    texts, at = b"", {}
    for value in sorted(set(replacements.values())):
        at[value] = len(texts)
        texts += value.encode() + b"\0"
    tree = {}
    for key, value in replacements.items():
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = at[value]
    units = {0: 0}
    place(tree, 0, 0, units)
    trie = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(max(units) + 1 | 0xFF))
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + texts).decode()


def place(node, index, label, units):
    """Finds room for the children of the unit at index: child = base ^ byte, with the value at base ^ 0."""
    base = 1
    while any(base ^ byte in units or base ^ byte == 0 for byte in node):
        base += 1
    units[index] = (index ^ base) << 10 | (0 in node) << 8 | label
    for byte in node:
        units[base ^ byte] = 0
    for byte, child in node.items():
        if byte == 0:
            units[base] = 1 << 31 | child
        else:
            place(child, base ^ byte, byte, units)
