"""Bring everything Headwater needs onto this machine: uv, the locked packages, a Java runtime.

Runs on the standard library of Python 3.11+ alone, because nothing else may be there yet.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JAVA_WANTED = 17
UV = "uv==0.13.7"  # pinned like everything else, so that two machines resolve alike


def main(venv: Path) -> int:
    """Set up the environment in `venv`; returns the exit code."""
    if sys.version_info < (3, 11):  # noqa: UP036  (this message is for people with an older Python)
        return stop(
            f"Headwater needs Python 3.11 or newer; this is {sys.version.split()[0]}.\n"
            "Install one and run:  make PYTHON=python3.11 setup"
        )
    try:
        create_environment(venv)
        say(f"installing the locked packages into {venv}")
        uv(venv, "pip", "install", "--quiet", "--requirement", str(ROOT / "requirements.lock"))
        uv(venv, "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    except subprocess.CalledProcessError as error:
        shown = " ".join(map(str, error.cmd))
        return stop(
            f"This command failed (its own words are above):\n  {shown}\nRun make again to go on from here."
        )
    return ensure_java()


def create_environment(venv: Path) -> None:
    """Make the virtual environment and put uv into it."""
    python = venv / "bin" / "python"
    if python.exists() and (venv / "bin" / "uv").exists():
        return
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    # Interrupted on the way, or the Python that it was made with is gone: begin again.
    if not python.exists() or subprocess.run([*pip, "--version"], capture_output=True).returncode:
        shutil.rmtree(venv, ignore_errors=True)
        make_environment(venv)
    subprocess.run([*pip, "install", "--quiet", "--force-reinstall", UV], check=True)


def make_environment(venv: Path) -> None:
    """Make an empty virtual environment that has pip."""
    say(f"creating {venv}")
    command = [sys.executable, "-m", "venv", str(venv)]
    if subprocess.run(command, capture_output=True).returncode == 0:
        return
    shutil.rmtree(venv, ignore_errors=True)
    # Debian splits venv from Python; where that part is missing, a uv that is already there can do it.
    uv_path = shutil.which("uv")
    if uv_path is not None:
        subprocess.run([uv_path, "venv", "--quiet", "--seed", "-p", sys.executable, str(venv)], check=True)
    elif install_with_apt("python3-venv"):
        subprocess.run(command, check=True)
    else:
        raise SystemExit(
            stop(
                "This Python cannot create virtual environments.\n"
                "Install the missing part, on Debian or Ubuntu:  sudo apt-get install python3-venv"
            )
        )


def uv(venv: Path, *arguments: str) -> None:
    """Run uv against the environment."""
    environment = {**os.environ, "VIRTUAL_ENV": str(venv.resolve()), "UV_NO_PROGRESS": "1"}
    subprocess.run([str(venv / "bin" / "uv"), *arguments], check=True, env=environment)


def ensure_java() -> int:
    """Spark needs a Java runtime; install one where none is found, or say exactly what to install."""
    found = java_version()
    if found is not None and found >= JAVA_WANTED:
        return 0
    home = os.environ.get("JAVA_HOME")
    where = f" in JAVA_HOME ({home})" if home else ""
    what = f"no Java runtime was found{where}" if found is None else f"Java {found}{where} is too old"
    say(f"{what}; Spark needs Java {JAVA_WANTED} or newer")
    # What JAVA_HOME names wins over anything that could be installed.
    if not home:
        for package in ("openjdk-21-jre-headless", "openjdk-17-jre-headless", "default-jre-headless"):
            if install_with_apt(package) and (java_version() or 0) >= JAVA_WANTED:
                return 0
    return stop(
        "Everything else is set up. "
        f"Install Java {JAVA_WANTED} or newer and run make again. One of:\n"
        "  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless\n"
        "  Fedora, RHEL:    sudo dnf install java-21-openjdk-headless\n"
        "  macOS:           brew install openjdk@21\n"
        f"or {'correct' if home else 'point'} JAVA_HOME{'' if home else ' at one that is already there'}."
    )


def java_version() -> int | None:
    """The major version of the Java that Spark would start, or None."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return None
    shown = subprocess.run([java, "-version"], capture_output=True, text=True)
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(match.group(1)) if match else None


_updated = False


def install_with_apt(package: str) -> bool:
    """Install a Debian package where that is possible without asking anybody."""
    global _updated
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return False
    say(f"installing {package}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}

    def run(*arguments: str) -> bool:
        done = subprocess.run([apt, *arguments], env=environment, capture_output=True, text=True, check=False)
        return done.returncode == 0

    if not _updated:
        _updated = True
        run("update", "-qq")
    return run("install", "-y", "-qq", "--no-install-recommends", package)


def say(text: str) -> None:
    """One line of progress."""
    print(f"setup: {text}", flush=True)


def stop(text: str) -> int:
    """Say what is wrong and what to do about it."""
    print(f"setup: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".venv")))
