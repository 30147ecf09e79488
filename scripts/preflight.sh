#!/bin/sh
# Say in one sentence what is missing before anything is installed.
python=$1
need_java() {
  echo "headrace: $1; Java 17 or newer is needed, install one: sudo apt-get install openjdk-17-jre-headless (Debian 12, Ubuntu; on Debian 13 openjdk-21-jre-headless), sudo dnf install java-21-openjdk-headless (Fedora), or brew install openjdk@21 and export JAVA_HOME=\$(brew --prefix openjdk@21)/libexec/openjdk.jdk/Contents/Home (macOS)." >&2
  exit 2
}
command -v "$python" >/dev/null 2>&1 || { echo "headrace: no '$python' was found; Python 3.10 or newer is needed, install it: sudo apt-get install python3 python3-venv (Debian, Ubuntu), sudo dnf install python3 (Fedora) or brew install python (macOS)." >&2; exit 2; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "headrace: '$python' is $("$python" --version 2>&1); Python 3.10 or newer is needed, name one with: make PYTHON=python3.11 ..." >&2; exit 2; }
"$python" -c 'import venv, ensurepip' 2>/dev/null || { echo "headrace: '$python' has no venv module; install it with: sudo apt-get install python3-venv (Debian, Ubuntu)." >&2; exit 2; }
java=java
[ -n "${JAVA_HOME:-}" ] && java="$JAVA_HOME/bin/java"
command -v "$java" >/dev/null 2>&1 || need_java "no Java was found${JAVA_HOME:+ in JAVA_HOME ($JAVA_HOME)}"
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9][0-9.]*\).*/\1/p' | head -n 1)
major=${version%%.*}
[ "$major" = 1 ] && major=${version#1.} && major=${major%%.*}
[ -n "$major" ] || need_java "the version of '$java' cannot be determined"
[ "$major" -ge 17 ] || need_java "'$java' is Java $major"
