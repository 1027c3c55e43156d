"""config.json and weights on the command line: import, export, build --from, compare."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
import yaml
from imported import DATA, FACTS, REFERENCES, fact, spec_of

import archlab
from archlab.compose import preset
from archlab.decoder.resolve import resolve
from archlab.interop.card import import_preset
from archlab.interop.export import differences, export
from archlab.interop.hub import load_config, read_config

LLAMA = DATA / "references" / "llama"


@pytest.fixture
def hub(tmp_path):
    """Folders with the config.json of public models, by name."""

    def make(name, **more):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        source = {"_name_or_path": fact(name)["hf_id"], **fact(name)["hf_config"], **more}
        (folder / "config.json").write_text(json.dumps(source))
        return folder

    return make


def test_import_prints_a_preset_with_the_exact_size_on_top(shell, hub):
    answer = shell("import", str(hub("llama-3.1-8b")))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(
        "# meta-llama/Llama-3.1-8B: imported from its config.json (model_type llama).\n"
        "# 8,030,261,248 parameters; KV cache 131,072 B a token in bf16.\n"
    )
    assert "base: 500000.0 # " in answer.out
    assert shell.left() == []


def test_import_writes_a_yaml_that_is_named_as_the_file_and_can_be_changed(shell, hub):
    answer = shell("import", str(hub("qwen2.5-7b-yarn")), "-o", "mine/my-qwen.yaml")
    assert answer.code == 0, answer.err
    assert answer.out == ("mine/my-qwen.yaml: qwen2, 7,615,616,512 parameters; KV cache 57,344 B a token in bf16\n")
    assert shell.left() == ["mine/my-qwen.yaml"]
    compared = shell("compare", "mine/my-qwen.yaml", "mine/my-qwen.yaml", "model/position=rope", "--json")
    assert compared.code == 0, compared.err
    assert [record["composition"]["name"] for record in compared.json["points"]] == ["my-qwen"] * 2


@pytest.mark.parametrize("command", ["import", "export"])
@pytest.mark.parametrize("whole", [True, False])
def test_what_is_read_is_not_written_over(shell, hub, command, whole):
    folder = hub("gpt2")
    before = (folder / "config.json").read_bytes()
    source = folder if whole else folder / "config.json"
    answer = shell(command, str(source), "-o", str(folder / "config.json"))
    assert (answer.code, answer.out) == (2, "")
    assert "is the file that is read; name another for what is written" in answer.err
    assert (folder / "config.json").read_bytes() == before


def test_a_device_is_written_to_and_not_replaced(shell, hub):
    folder = hub("gpt2")
    answer = shell("import", str(folder), "-o", "/dev/stdout")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("# ")
    assert "defaults:" in answer.out
    os.mkfifo(shell.folder / "pipe")
    reader = os.open(shell.folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert shell("import", str(folder), "-o", "pipe").code == 0
    assert b"defaults:" in os.read(reader, 1 << 16)
    os.close(reader)
    assert stat.S_ISFIFO(os.stat(shell.folder / "pipe").st_mode)


def test_what_is_written_through_a_link_leaves_the_link(shell, hub):
    (shell.folder / "to.yaml").symlink_to("real.yaml")
    assert shell("import", str(hub("gpt2")), "-o", "to.yaml").code == 0
    assert (shell.folder / "to.yaml").is_symlink()
    assert "defaults:" in (shell.folder / "real.yaml").read_text()
    assert stat.S_IMODE((shell.folder / "real.yaml").stat().st_mode) == 0o666 & ~umask()


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_c06_import_says_that_the_factor_holds_and_not_the_ratio(shell, hub):
    scaling = {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32768}
    folder = hub("qwen2.5-7b", max_position_embeddings=131072, rope_scaling=scaling)
    said = "position: factor 2 holds, though the context is 4 times the original"
    answer = shell("import", str(folder), "-o", "mine.yaml")
    assert answer.err == f"note: {said}\n"
    assert f"# Note: {said}.\n" in (shell.folder / "mine.yaml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", FACTS)
def test_the_yaml_composes_back_to_the_identical_spec(name, hub):
    folder = hub(name)
    spec = load_config(folder).spec
    file = folder / f"{name}.yaml"
    file.write_text(import_preset(folder, file)[0])
    assert archlab.load(file) == spec
    assert max(len(line) for line in file.read_text().splitlines() if "_factor: [" not in line) <= 120
    body = yaml.safe_load(file.read_text())
    first, *entries = body.pop("defaults")
    assert first == "_self_"
    for entry in entries:
        (axis, choice), *_ = entry.items()
        body[axis] = {"choice": choice, **body.get(axis, {})}
    assert resolve(body).spec == spec  # by YAML 1.1 too, whose floats need a point


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCES)
def test_a_references_yaml_composes_back_to_the_identical_spec(name, tmp_path):
    folder = DATA / "references" / name
    spec = load_config(folder).spec
    file = tmp_path / f"{name}.yaml"
    file.write_text(import_preset(folder, file)[0])
    assert archlab.load(file) == spec


@pytest.mark.parametrize("name", [*FACTS, *REFERENCES])
def test_an_export_is_read_back_as_the_same_model(name):
    config = fact(name)["hf_config"] if name in FACTS else read_json(DATA / "references" / name / "config.json")
    spec = spec_of(config)
    exported = export(spec)
    assert exported["model_type"] == config["model_type"]
    assert list(differences(spec, resolve(read_config(exported)[1]).spec)) == []


def read_json(path):
    return json.loads(Path(path).read_text())


def test_export_prints_and_writes_a_config(shell):
    printed = shell("export", "gpt2", "model.n_layers=2")
    assert printed.code == 0, printed.err
    assert printed.json["n_layer"] == 2
    assert printed.json["architectures"] == ["GPT2LMHeadModel"]
    written = shell("export", "gpt2", "model.n_layers=2", "-o", "config.json")
    assert written.out.startswith("config.json: gpt2, ")
    assert json.loads((shell.folder / "config.json").read_text()) == printed.json
    assert load_config(shell.folder).spec.n_layers == 2


def test_export_names_what_no_family_can_say(shell):
    answer = shell("export", "gpt2", "model/norm=rmsnorm")
    assert answer.code == 2
    assert "norm would be layernorm, not rmsnorm" in answer.err
    odd = shell("export", "minimind", "model/position=sinusoidal", "-o", "config.json")
    assert odd.code == 2
    assert "not sinusoidal" in odd.err
    assert shell.left() == []


def test_a_model_is_exported_to_its_family_or_to_the_first_that_says_it():
    assert export(archlab.load("minimind"))["model_type"] == "minimind"
    assert export(archlab.load("llama-3.1-8b"))["model_type"] == "llama"
    assert export(archlab.load("gqa"))["model_type"] == "llama"
    assert export(archlab.load("llama-3-8b", "model.attention.qk_norm=head"))["model_type"] == "qwen3"


def test_build_from_a_config_with_overrides(shell, hub):
    folder = hub("smollm2-135m")
    answer = shell("build", "--from", str(folder), "model.n_layers=3", "bench=none", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["figures"]["params.ffn"]["value"] == 3 * 3 * 576 * 1536
    assert answer.json["config"]["model"]["family"] == "llama"
    again = shell("compare", shell.left()[-1].rpartition("/")[0], "--json")
    assert again.json["points"][0]["figures"] == answer.json["figures"]


def test_a_sweep_from_a_config(shell, hub):
    answer = shell("build", "-m", "--from", str(hub("gpt2")), "model.n_layers=1,2", "bench=none", "--json")
    assert answer.code == 0, answer.err
    assert [record["composition"]["n_layers"] for record in answer.json["points"]] == [1, 2]


def test_two_models_at_once_are_refused(shell, hub):
    answer = shell("build", "--from", str(hub("gpt2")), "model=minimind")
    assert answer.code == 2
    assert "both say which model" in answer.err


@pytest.mark.slow
def test_weights_on_the_command_line(shell):
    fits = shell("build", "--from", str(LLAMA), f"weights={LLAMA}", "bench=none")
    assert fits.code == 0, fits.err
    other = shell("build", "--from", str(LLAMA), f"weights={DATA / 'references' / 'gpt2'}", "bench=none")
    assert other.code == 2
    assert "these weights do not fit the model" in other.err
    swept = shell("build", "-m", "--from", str(LLAMA), f"weights={LLAMA},nowhere", "bench=none", "--json")
    assert swept.code == 1
    assert [record["status"] for record in swept.json["points"]] == ["ok", "invalid"]


def test_compare_takes_configs_folders_and_presets_side_by_side(shell, hub):
    folder = hub("llama-2-7b")
    plain = shell.folder / "other.json"
    shutil.copy(folder / "config.json", plain)
    answer = shell("compare", str(folder), str(folder / "config.json"), "other.json", "llama-2-7b", "--json")
    assert answer.code == 0, answer.err
    assert {record["figures"]["params"]["value"] for record in answer.json["points"]} == {6_738_415_616}


@pytest.mark.slow
def test_a_path_that_is_called_as_a_preset_is_read_by_from_and_noted_elsewhere(shell, hub):
    folder = shell.folder / "gpt2"
    shutil.copytree(hub("smollm2-135m"), folder)
    built = shell("build", "--from", "gpt2", "bench=none", "verify=false", "--json")
    assert built.json["figures"]["params"]["value"] == 134_515_008
    shutil.rmtree(shell.folder / "outputs")
    note = "gpt2 is the preset of that name; ./gpt2 is here too: write ./gpt2 to read it"
    compared = shell("compare", "gpt2", "./gpt2", "--json").json["points"]
    assert [record["figures"]["params"]["value"] for record in compared] == [124_439_808, 134_515_008]
    assert [record["notes"] for record in compared] == [[note], []]
    assert note in shell("compare", "gpt2", "mha").out.replace("\n", " ")
    exported = shell("export", "gpt2")
    assert exported.json["model_type"] == "gpt2"
    assert exported.err == f"note: {note}\n"
    assert shell("export", "./gpt2").json["model_type"] == "llama"
    shutil.rmtree(folder)
    assert (
        shell("build", "--from", "gpt2", "bench=none", "verify=false", "--json").json["config"]["model"]["name"]
        == "gpt2"
    )
    folder.mkdir()  # an empty folder is no model
    assert shell("compare", "gpt2", "--json").json["points"][0]["notes"] == []


def test_load_takes_a_config_with_overrides(hub):
    spec = archlab.load(hub("gpt2"), "model/attention=mqa", "model.n_layers=2")
    assert (spec.n_layers, spec.layers[0].attention.choice, spec.family) == (2, "mqa", "gpt2")
    assert preset("gpt2")["name"] == "gpt2"


@pytest.mark.parametrize("command", ["import", "compare"])
def test_a_config_is_answered_without_torch_hydra_or_transformers(shell, hub, command):
    name = "deepseek-v3"
    code = f"""
import sys
from archlab import cli
code = cli.answer(["{command}", {str(hub(name))!r}])
assert code == 0
print(sorted({{"torch", "hydra", "omegaconf", "transformers", "yaml"}} & set(sys.modules)), file=sys.stderr)
"""
    answer = shell.python(code)
    assert answer.err.strip() == "[]"
    assert "671,026,404,352" in answer.out


def test_one_line_and_exit_2_for_a_config_that_is_not_modelled(shell, hub):
    answer = shell("import", str(hub("gpt2", mystery=True)), "-o", "out.yaml")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("archlab: ")
    assert answer.err.count("\n") == 1
    assert "I do not model mystery = true" in answer.err
    assert shell.left() == []
