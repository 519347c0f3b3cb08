"""Every command on a small file: what it prints, its exit status, and what it does with bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.driver.kernels import checked

import treadle as td
from treadle.cli import BAD_INPUT, COMMANDS, main
from treadle.driver.describe import described_plan

SOURCE = """
import treadle as td

M, N, K = td.dims("M N K")


@td.kernel
def product(A: td.Tensor[M, K], B: td.Tensor[K, N], bias: td.Tensor[N] = None, Y: td.Out[M, N] = None, *, twice=False):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for k in td.reduce(K):
            acc = td.mma(A[m, k], B[k, n], acc)
        if bias is not None:
            acc = acc + bias[n]
        Y[m, n] = acc + acc if twice else acc


@td.kernel
def collide(X: td.Tensor[M], at: td.Tensor[M, td.i32], Y: td.Out[M] = None):
    for m in td.parallel(M.each):
        Y[0] = X[m]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "kernels.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def text(file: Path) -> Path:
    """The machine text of the product's universal plan."""
    path = file.with_suffix(".tdm")
    command = [sys.executable, "-m", "treadle", "plan", f"{file}:product", "--absent", "bias", "--target", "cpu:avx2"]
    done = subprocess.run([*command, "--family", "universal", "--machine"], capture_output=True, text=True, check=True)
    path.write_text(done.stdout)
    return path


Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *words: object) -> tuple[int, str, str]:
    status = main([str(w) for w in words])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_plan(capsys: Capture, file: Path) -> None:
    where = f"{file}:product"
    status, out, _ = run(capsys, "plan", where, "--target", "cpu:avx2")
    assert status == 0 and "product on cpu:avx2" in out and "judged: verified" in out
    status, again, _ = run(capsys, "explain", where, "--target", "cpu:avx2", "--dim", "M=4096")
    assert status == 0 and "holds when:" in again
    status, out, _ = run(
        capsys, "plan", where, "--target", "cpu:avx2", "--program", "--arg", "A=bf16[M,K]", "--absent", "bias"
    )
    assert status == 0 and "tensor A: bf16[M, K]" in out and "bias" not in out
    status, out, _ = run(capsys, "plan", where, "--target", "cpu:avx2", "--program", "--set", "twice=True")
    assert status == 0 and 'staged twice = "True"' in out
    status, out, _ = run(capsys, "plan", where, "--target", "cpu:avx2", "--json")
    assert status == 0 and json.loads(out)["target"] == "cpu:avx2"
    status, out, _ = run(capsys, "plan", where, "--target", "cpu:avx2", "--source")
    assert status == 0 and "define" in out


def test_check(capsys: Capture, file: Path, text: Path) -> None:
    assert text.read_text(encoding="utf-8").startswith("tdm 1\ntarget cpu:avx2\n")
    status, out, _ = run(capsys, "check", text)
    assert status == 0 and "verified" in out and "source: embedded" in out
    where = f"{file}:product"
    status, out, _ = run(capsys, "check", text, "--source", where, "--absent", "bias", "--json")
    shown = json.loads(out)
    assert status == 0 and shown["status"] == "verified" and shown["source"] == "recaptured"
    names = "status judgement line reason counterexample missing seconds source target permissions partner".split()
    assert list(shown) == names
    status, _, err = run(capsys, "check", text, "--source", where, "--absent", "bias", "--set", "twice=True")
    assert status == BAD_INPUT and err.startswith("machine/source-differs: ")


def edited(text: Path, old: str, new: str) -> Path:
    content = text.read_text(encoding="utf-8")
    assert old in content
    path = text.with_name("edited.tdm")
    path.write_text(content.replace(old, new, 1))
    return path


def test_check_of_an_edited_text(capsys: Capture, text: Path) -> None:
    wrong = edited(text, "store Y[t_m", "store Y[1 + t_m")
    status, out, _ = run(capsys, "check", wrong, "--json")
    shown = json.loads(out)
    assert status == 1 and shown["status"] == "rejected" and shown["judgement"] == "J1" and shown["counterexample"]
    line = wrong.read_text().splitlines()[shown["line"] - 1]
    assert "store Y[1 + t_m" in line
    status, out, _ = run(capsys, "check", wrong)
    assert status == 1 and out.startswith("rejected: ")


def test_simulate(capsys: Capture, text: Path) -> None:
    status, out, _ = run(capsys, "simulate", text, "--dim", "M=5", "--dim", "N=3", "--dim", "K=4", "--schedules", "3")
    assert status == 0 and out.startswith("3 schedules at K = 4, M = 5, N = 3: 0 with findings")
    wrong = edited(text, "store Y[t_m", "store Y[1 + t_m")
    words = ("--dim", "M=2", "--dim", "N=2", "--dim", "K=2", "--schedules", "2")
    status, out, _ = run(capsys, "simulate", wrong, *words)
    assert status == 1 and "seed 0" in out


def test_simulate_names_what_is_wrong_with_an_embedded_program(capsys: Capture, text: Path) -> None:
    wrong = edited(text, "store Y[m", "store Y[gone + m")
    status, _, err = run(capsys, "simulate", wrong, "--dim", "M=5", "--dim", "N=3", "--dim", "K=4")
    assert status == BAD_INPUT and "machine/form" in err and "gone" in err and "Traceback" not in err


def test_simulate_draws_four_bits(capsys: Capture, text: Path) -> None:
    """Arguments and outputs of four bits, from their own range."""
    half = text.with_name("half.tdm")
    half.write_text(HALF_BYTES)
    status, out, err = run(capsys, "simulate", half, "--dim", "M=40", "--schedules", "2")
    assert status == 0 and out.startswith("2 schedules at M = 40: 0 with findings"), out + err


HALF_BYTES = """tdm 1
target cpu:avx2
program {
  program negated
    dim M
    tensor X: i4[M]
    tensor Y: i4[M] out
    body
      region R0 parallel (m in M)
        %x: i4[m] = load X[m]
        %y: i4[m] = neg %x
        store Y[m] = %y
}
guard {
  injective(Y)
  disjoint(X, Y)
}
host {
  launch main grid 1 threads 1
}
kernel main {
  frag x i4[]
  frag y i4[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t .. t + 1) {
      x = load X[t] ; %x[t]
      y = neg x ; %y[t]
      store Y[t] = y ; store 0 [t]
    }
  }
}
"""


def test_sanitize(capsys: Capture, file: Path) -> None:
    words = ("--dim", "M=3", "--dim", "N=2", "--dim", "K=4")
    status, out, _ = run(capsys, "sanitize", f"{file}:product", *words)
    assert status == 0 and "nothing found" in out
    status, out, _ = run(capsys, "sanitize", f"{file}:collide", "--dim", "M=3")
    assert status == 1 and "findings" in out


def test_cache(capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from_default = "treadle.cli.cache.default_cache"
    cache = __import__("treadle.runtime.cache", fromlist=["Cache"]).Cache(tmp_path / "cache")
    monkeypatch.setattr(from_default, lambda: cache)
    cache.put("a" * 10, {"x": b"123"})
    status, out, _ = run(capsys, "cache")
    assert status == 0 and ": 1 entries" in out
    status, out, _ = run(capsys, "cache", "--clear")
    assert status == 0 and "1 entries removed" in out and ": 0 entries" in out


def test_doctor(capsys: Capture) -> None:
    status, out, _ = run(capsys, "doctor")
    names = [line.split()[0] for line in out.splitlines()]
    assert status == 0 and {"treadle", "python", "cpu", "workers", "cuda", "cache", "numpy"} <= set(names)


def test_usage(capsys: Capture) -> None:
    status, out, _ = run(capsys)
    assert status == BAD_INPUT and all(c in out for c in COMMANDS)
    assert run(capsys, "--help")[0] == 0
    status, out, _ = run(capsys, "--version")
    assert status == 0 and out.strip()[0].isdigit()
    status, _, err = run(capsys, "fly")
    assert status == BAD_INPUT and "no command 'fly'" in err


@pytest.mark.parametrize(
    "words, says",
    [
        (["plan", "nowhere.py:k"], "cli/kernel"),
        (["plan", "FILE:gone"], "cli/kernel"),
        (["plan", "FILE"], "cli/kernel"),
        (["plan", "FILE:product", "--arg", "A"], "cli/argument"),
        (["plan", "FILE:product", "--arg", "Z=f32"], "cli/argument"),
        (["plan", "FILE:product", "--arg", "A=f33"], "dtype/unknown"),
        (["plan", "FILE:product", "--dim", "M=-1"], "cli/argument"),
        (["plan", "FILE:product", "--dim", "Q=4"], "cli/argument"),
        (["sanitize", "FILE:product", "--dim", "Q=4"], "cli/argument"),
        (["plan", "FILE:product", "--set", "twice"], "cli/argument"),
        (["plan", "FILE:product", "--set", "twice=import os"], "cli/argument"),
        (["plan", "FILE:product", "--set", "other=1"], "capture/staged"),
        (["plan", "FILE:product", "--target", "vax"], "plan/target"),
        (["plan", "FILE:product", "--target", "cpu:avx2", "--family", "none"], "plan/none"),
        (["sanitize", "FILE:product", "--dim", "M"], "cli/argument"),
        (["check", "gone.tdm"], "treadle check: "),
        (["check", "FILE"], "machine/syntax"),
        (["simulate", "FILE"], "machine/syntax"),
        (["simulate", "gone.tdm"], "treadle simulate: "),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else v,
)
def test_bad_input(capsys: Capture, file: Path, words: list[str], says: str) -> None:
    status, _, err = run(capsys, *(w.replace("FILE", str(file)) for w in words))
    assert status == BAD_INPUT and err.startswith(says), err


def test_an_unknown_family_is_told_the_known_ones(capsys: Capture, file: Path) -> None:
    status, _, err = run(capsys, "plan", f"{file}:product", "--target", "cpu:avx2", "--family", "tiled")
    assert status == BAD_INPUT and "the family tiled" in err and "one of vector sweep, tiled contraction" in err


@pytest.mark.parametrize("command", ["check", "simulate", "show"])
def test_a_saved_plan_is_told_what_it_is(capsys: Capture, file: Path, tmp_path: Path, command: str) -> None:
    path = tmp_path / "plan.json"
    described_plan(f"{file}:product", (), (), (), (), "cpu:avx2", "universal").save(path)
    with pytest.raises(SystemExit) as left:
        main([command, str(path)])
    said = capsys.readouterr().err
    assert left.value.code == BAD_INPUT and "is a saved plan" in said and "td.load" in said


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_options_that_do_not_exist(capsys: Capture, command: str) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--no-such-option"])
    assert left.value.code == BAD_INPUT


def test_binary_files(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "x.tdm"
    path.write_bytes(bytes(range(256)))
    for command in ("check", "simulate"):
        status, _, err = run(capsys, command, path)
        assert status == BAD_INPUT and err


def test_a_reader_that_goes_away(text: Path) -> None:
    command = f"{sys.executable} -m treadle doctor | head -1 > /dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0" and done.stderr == ""


def test_checking_loads_no_planner(text: Path) -> None:
    program = (
        "import sys; from treadle.cli import main; status = main(['check', sys.argv[1]]);"
        "print(status, [m for m in sys.modules if m.startswith('treadle.') and m.split('.')[1] in "
        "('planner', 'realise', 'rules', 'targets', 'toolchain', 'simulate', 'runtime')])"
    )
    done = subprocess.run([sys.executable, "-c", program, str(text)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


@pytest.mark.parametrize("command", ["check", "simulate"])
def test_a_kernel_where_a_machine_text_is_expected(capsys: Capture, file: Path, command: str) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, f"{file}:product"])
    assert left.value.code == BAD_INPUT
    assert f"treadle plan {file}:product --machine" in capsys.readouterr().err


def test_an_extent_that_python_needs_comes_from_dim(capsys: Capture) -> None:
    where = f"{Path(__file__).parents[1] / 'driver' / 'wrong.py'}:unrolled"
    status, out, _ = run(capsys, "plan", where, "--dim", "N=3", "--program")
    assert status == 0 and out.count("load X[m, ") == 3
    status, out, _ = run(capsys, "sanitize", where, "--dim", "N=3", "--dim", "M=5")
    assert status == 0 and "nothing found" in out


def test_sanitize_sees_reads_of_an_output_without_values(capsys: Capture) -> None:
    where = f"{Path(__file__).parents[1] / 'driver' / 'wrong.py'}:added"
    status, out, _ = run(capsys, "sanitize", where)
    assert status == 1 and "read/uninitialised" in out
    status, out, _ = run(capsys, "sanitize", where, "--arg", "Y=f32")
    assert status == 0 and "nothing found" in out


def test_scalars_need_no_description(capsys: Capture) -> None:
    where = f"{Path(__file__).parents[1] / 'driver' / 'wrong.py'}:scale"
    status, out, _ = run(capsys, "plan", where, "--program")
    assert status == 0 and "s: f32" in out
    status, out, _ = run(capsys, "sanitize", where)
    assert status == 0 and "nothing found" in out


def test_simulate_a_program_with_a_check(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "checked.tdm"
    path.write_text(checked.plan(td.like(td.f32, 7)).machine())
    status, out, _ = run(capsys, "simulate", path, "--dim", "M=5", "--schedules", "3")
    assert status == 0 and "0 with findings" in out
    assert run(capsys, "check", path)[0] == 0


def test_an_interrupt_ends_a_command_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(argv: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("treadle.cli.doctor.run", interrupted)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "treadle doctor: interrupted\n"


NAMED = """
import treadle as td

M, Größe = td.dims("M Größe")


@td.kernel
def doubled(Ä: td.Tensor[M, Größe], µ: td.Out[M, Größe] = None):  # ×2
    for m in td.parallel(M):
        µ[m, Größe] = Ä[m, Größe] * 2
"""


def test_names_that_the_locale_has_no_letters_for(tmp_path: Path) -> None:
    """Files are UTF-8 whatever the locale is; what a terminal cannot show is escaped."""
    (tmp_path / "k.py").write_text(NAMED, encoding="utf-8")
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    told = []
    for words in (["run", "k.py:doubled"], ["plan", "k.py:doubled", "--machine", "-o", "k.txt"], ["check", "k.txt"]):
        command = [sys.executable, "-m", "treadle.cli", *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    assert b"\\u03bc: float32" in told[0]  # Python reads the micro sign as the letter
    assert "Größe" in (tmp_path / "k.txt").read_text(encoding="utf-8") and b"verified" in told[2]
