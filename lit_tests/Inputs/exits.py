"""`exits.py CODE COMMAND…`: run the command and succeed when it ends with exactly that exit code."""

import subprocess
import sys

wanted, command = int(sys.argv[1]), sys.argv[2:]
code = subprocess.run(command, check=False).returncode
if code != wanted:
    print(f"exit code {code}, not {wanted}: {' '.join(command)}", file=sys.stderr)
    sys.exit(1)
