"""`python -m stepwarden` is the stepwarden command."""

import sys

from stepwarden.cli.main import main

sys.exit(main())
