"""Writes a file as a C string array: embed.py INPUT OUTPUT NAME."""
import sys


def embed(source: str, target: str, name: str) -> None:
    with open(source, "rb") as file:
        data = file.read() + b"\0"
    rows = [", ".join(str(byte) for byte in data[k:k + 24]) for k in range(0, len(data), 24)]
    with open(target, "w", encoding="ascii") as file:
        file.write(f"static const char {name}[] = {{\n" + ",\n".join(rows) + "};\n")


if __name__ == "__main__":
    embed(*sys.argv[1:4])
