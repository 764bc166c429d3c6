#!/usr/bin/env python3
"""Prints the licence notices of all crates that are linked into the programs.

Usage: notices.py < the output of `cargo metadata`

A text that several crates share is printed once, behind their names. The notices are those of the crates' own files;
a crate without such a file is named with its licence.
"""
import json
import pathlib
import sys

PROGRAMS = "annulet"
NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "COPYRIGHT")


def linked(metadata):
    """The packages that the programs link: what they depend on at run time, and what that depends on."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [package["id"] for package in metadata["packages"] if package["name"] == PROGRAMS]
    seen = set(todo)
    while todo:
        for dependency in nodes[todo.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_linked and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                todo.append(dependency["pkg"])
    # The project's own crates have no source in a registry.
    return sorted((packages[it] for it in seen if packages[it]["source"]), key=lambda it: (it["name"], it["version"]))


def texts(package):
    """The files of a crate that state its licence, in the order of their names."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = sorted(it for it in folder.iterdir() if it.is_file() and it.name.upper().startswith(NAMES))
    return [file.read_text(encoding="utf-8", errors="replace").strip() for file in files]


def main():
    packages = linked(json.load(sys.stdin))
    print("Annulet is distributed with the following libraries, under the licences that their authors chose.\n")
    by_text = {}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license'] or 'see below'}")
        for text in texts(package):
            by_text.setdefault(text, []).append(name)
    for text, names in by_text.items():
        print(f"\n{'=' * 78}\n{', '.join(names)}\n{'-' * 78}\n{text}")


if __name__ == "__main__":
    main()
