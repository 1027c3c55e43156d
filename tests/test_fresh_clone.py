"""The README's first command, as it is written there, in a fresh clone and a fresh venv."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_first_command_sets_up_and_runs_the_main_job(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    command = re.search(r"```bash\n(.*?)\n```", (clone / "README.md").read_text(), re.DOTALL)[1]
    done = subprocess.run(["bash", "-c", command], cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "38,937,088 = 38,937,088" in done.stdout
    assert "train" in done.stdout
    assert list(clone.glob("outputs/*/*/record.json"))
    archlab = clone / ".venv" / "bin" / "archlab"
    elsewhere = subprocess.run(
        [archlab, "build", "model=mqa", "bench=none"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert elsewhere.stderr == ""
    assert list(tmp_path.glob("outputs/*/*/record.json"))
