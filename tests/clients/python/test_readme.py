"""The steps of README.md, in their order, as a new user types them."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import case
from server import HOST, Server

HERE = os.path.dirname(os.path.abspath(__file__))
README = os.path.join(HERE, "..", "..", "..", "README.md")

# Steps that this suite has taken before it runs, or takes with ports of its own: builds, nodes, the client's python.
TAKEN = re.compile(r"(cargo (run|test) |export PATH=|python=|PYTHONPATH=)")


def blocks():
    """The indented blocks under "Use it", each as its lines."""
    with open(README, encoding="utf-8") as file:
        text = file.read()
    section = text.split("## Use it\n")[1].split("\n## ")[0]
    for part in re.split(r"\n(?!    )[^\n]*\n|\n\n", section):
        lines = [line[4:] for line in part.split("\n") if line.startswith("    ")]
        if lines:
            yield lines


class Readme(unittest.TestCase):
    own_nodes = True

    def test_its_steps_work_in_their_order(self):
        folder = tempfile.TemporaryDirectory(prefix="annulet-client-")
        self.addCleanup(folder.cleanup)
        binary = os.path.abspath(case.binary())
        os.symlink(binary, os.path.join(folder.name, "annulet"))
        os.symlink("data", os.path.join(folder.name, "annulet-data"))
        server = Server(binary, folder.name)
        self.addCleanup(server.kill)
        server.start()
        environment = {
            **os.environ,
            "PATH": f"{folder.name}:{os.environ['PATH']}",
            "PYTHONPATH": HERE,
            "ANNULET_ADDRESS": f"{HOST}:{server.pb_port}",
        }
        printed = []

        def step(command, text):
            done = subprocess.run(
                command, input=text, cwd=folder.name, env=environment, capture_output=True, text=True
            )
            self.assertEqual(done.returncode, 0, f"{text}\n{done.stdout}{done.stderr}")
            printed.append(done.stdout)

        for lines in blocks():
            if "import riak" in lines:
                code = "\n".join(lines)
                self.assertIn("pb_port=8087", code)
                step([sys.executable, "-"], code.replace("8087", str(server.pb_port)))
                continue
            for line in lines:
                if line.startswith("annulet check"):
                    self.assertEqual(server.stop(), 0)
                if not TAKEN.match(line):
                    step(["sh"], line)
        self.assertEqual(printed[0], "{'born': 1815, 'died': 1852} ['ada']\n")
        self.assertEqual(printed[1:4], ["", '{"born": 1815}', "ada\n"])
        self.assertTrue(printed[4].endswith("no damage\n"), printed[4])
        self.assertEqual(len(printed), 5)
