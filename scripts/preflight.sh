#!/bin/sh
# Say in one sentence what is missing before anything is installed.
python=$1
need_java() {
  echo "headrace: $1; Java 17 or newer is needed. Install it with: 'sudo apt-get install openjdk-17-jre-headless' (Debian, Ubuntu), 'sudo dnf install java-17-openjdk-headless' (Fedora) or 'brew install openjdk@17' (macOS)." >&2
  exit 2
}
command -v "$python" >/dev/null 2>&1 || { echo "headrace: no '$python' was found; Python 3.10 or newer is needed (Debian: sudo apt-get install python3 python3-venv)." >&2; exit 2; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "headrace: '$python' is $("$python" --version 2>&1); Python 3.10 or newer is needed, name one with: make PYTHON=python3.11 ..." >&2; exit 2; }
"$python" -c 'import venv, ensurepip' 2>/dev/null || { echo "headrace: '$python' has no venv module; install it with: sudo apt-get install python3-venv (Debian, Ubuntu)." >&2; exit 2; }
java=java
[ -n "${JAVA_HOME:-}" ] && java="$JAVA_HOME/bin/java"
command -v "$java" >/dev/null 2>&1 || need_java "no Java was found${JAVA_HOME:+ in JAVA_HOME ($JAVA_HOME)}"
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\)\.*\([0-9]*\).*/\1 \2/p' | head -n 1)
major=${version%% *}
[ "$major" = 1 ] && major=${version##* }
[ -n "$major" ] || need_java "the version of '$java' cannot be told"
[ "$major" -ge 17 ] || need_java "'$java' is Java $major"
