#!/bin/sh
# Set up .venv-spark-VERSION: the locked packages, with PySpark alone replaced, for whose other versions no hash is known.
set -eu
python=$1
version=$2
case "$version" in
  [0-9]*.[0-9]*.[0-9]*) ;;
  *) echo "headrace: name a version of PySpark: make test-spark VERSION=4.3.0" >&2; exit 2 ;;
esac
venv=.venv-spark-$version
lock=$venv/without-pyspark.txt
[ -e "$venv/.installed" ] && [ "$venv/.installed" -nt constraints.txt ] && [ "$venv/.installed" -nt pyproject.toml ] && exit 0
"$python" -m venv "$venv"
pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check"
$pip --require-hashes --requirement scripts/build.txt
awk '/^pyspark==/ { skip = 1 } skip { if (!/\\$/) skip = 0; next } { print }' constraints.txt > "$lock"
$pip --require-hashes --no-deps --no-build-isolation --requirement "$lock"
$pip --no-build-isolation "pyspark==$version" || {
  echo "headrace: PySpark $version cannot be installed; 'pip index versions pyspark' lists the versions" >&2
  exit 2
}
$pip --no-deps --no-build-isolation --editable .
touch "$venv/.installed"
