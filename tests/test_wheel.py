"""The wheel: built, installed in a clean venv, run from another folder; conf/ is in it and the checkout is not."""

import json
import os
import site
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A clean venv with the wheel; what archlab depends on is lent from this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "-q"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("archlab-*.whl")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    subprocess.run(
        [*pip, "--python", python, "install", "--no-deps", wheel], check=True, capture_output=True, text=True
    )
    packages = sysconfig.get_path("purelib", vars={"base": folder / "venv", "platbase": folder / "venv"})
    (Path(packages) / "lent.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return folder


def run(installed, *arguments):
    elsewhere = installed / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [installed / "venv" / "bin" / "archlab", *arguments]
    return subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_main_job_from_another_folder(installed):
    record = json.loads(run(installed, "build", "model=gqa", "bench=none", "--json"))
    assert record["figures"]["params"]["value"] == 38_937_088
    assert all(check["ok"] for check in record["checks"])
    assert (installed / "elsewhere" / record["folder"] / "record.json").is_file()


@pytest.mark.slow
def test_sweeps_presets_and_components(installed):
    assert len(json.loads(run(installed, "build", "-m", "model=mha,gqa", "bench=none", "--json"))["points"]) == 2
    assert "63,912,192" in run(installed, "models")
    assert "rmsnorm" in run(installed, "components", "norm")


@pytest.mark.slow
def test_what_a_page_is_made_of_is_in_it(installed):
    (wheel,) = installed.glob("archlab-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    sources = [
        path for path in (ROOT / "archlab" / "report" / "html").rglob("*") if path.suffix in (".html", ".css", ".js")
    ]
    assert len(sources) > 10
    assert {str(path.relative_to(ROOT)) for path in sources} <= set(names)


def test_it_is_the_wheel_that_ran(installed):
    where = subprocess.run(
        [installed / "venv" / "bin" / "python", "-c", "import archlab.presets as p; print(p.conf_dir())"],
        cwd=installed,
        capture_output=True,
        text=True,
        check=True,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    ).stdout
    assert Path(where.strip()).is_relative_to(installed / "venv")
