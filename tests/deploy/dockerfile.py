"""A Dockerfile as its instructions, and what they do carried out in a folder, without an engine.

`/opt` and `/src` of the image are folders of the same name in it; a stage is laid over the one before.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).parents[2] / "deploy"
ROOT = DEPLOY.parent
INSIDE = re.compile(r"(?<![\w./-])/(opt|src)(?![\w-])")  # what of a command is a path of the image's


@dataclass(frozen=True)
class Instruction:
    """One instruction, its continued lines joined."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """Of the exec form, or of the shell's."""
        return json.loads(self.text) if self.text.startswith("[") else self.text.split()


def read_dockerfile(name: str) -> list[Instruction]:
    """The instructions of `deploy/docker/<name>.Dockerfile`."""
    lines = (DEPLOY / "docker" / f"{name}.Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [
        Instruction(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined) if name
    ]


def last(instructions: list[Instruction], name: str) -> Instruction:
    return next(one for one in reversed(instructions) if one.name == name)


def settings(instructions: list[Instruction]) -> dict[str, str]:
    """The variables of the last stage."""
    told = " ".join(one.text for one in stages(instructions)[-1] if one.name == "ENV")
    return dict(word.split("=", 1) for word in told.split())


def stages(instructions: list[Instruction]) -> list[list[Instruction]]:
    """The instructions of each stage, without its FROM."""
    found: list[list[Instruction]] = []
    for one in instructions:
        if one.name == "FROM":
            found.append([])
        elif found:
            found[-1].append(one)
    return found


class Folder:
    """Where an image is laid down. `skipped`: commands that are not run, by a word of theirs."""

    def __init__(self, root: Path, *skipped: str) -> None:
        self.root = root
        self.skipped = (*skipped, "useradd")  # needs root, and changes the machine
        self.where = root
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ETT_", "PYTHON", "VIRTUAL_ENV"))
        }

    def inside(self, text: str) -> str:
        """A text of the image's with the paths that it has here."""
        return INSIDE.sub(lambda found: f"{self.root}/{found[1]}", text)

    def lay(self, stage: list[Instruction]) -> Folder:
        for one in stage:
            if one.name == "WORKDIR":
                self.where = Path(self.inside(one.text))
                self.where.mkdir(parents=True)
            elif one.name == "COPY" and "--from" not in one.text:
                self._copy(one.words)
            elif one.name == "RUN" and not any(word in one.text for word in self.skipped):
                self._run(one.text)
        return self

    def _copy(self, words: list[str]) -> None:
        *sources, to = words
        target = self.where / to
        for source in map(ROOT.joinpath, sources):
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)

    def _run(self, command: str) -> None:
        script = re.sub(r"(^|&& )python ", rf"\1{sys.executable} ", self.inside(command))
        done = subprocess.run(
            ["sh", "-c", script], cwd=self.where, env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"


def copied(instructions: list[Instruction]) -> Iterator[str]:
    """What comes from the project."""
    for one in instructions:
        if one.name == "COPY" and "--from" not in one.text:
            yield from one.words[:-1]
