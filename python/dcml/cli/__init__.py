"""The command `dcml`: what a graph becomes, how fast it is, and where it goes wrong.

The one idea: a subcommand is a module with HELP, EXAMPLES, add_arguments(parser) and run(args), which returns the exit code.
Nothing but argparse is imported before it is known which of them runs.
Must not know: what a subcommand does.
"""
import argparse
import importlib
import os
import sys

from .problems import BadInput, one_line

OK, FINDING, BAD_INPUT = 0, 1, 2
COMMANDS = ("opt", "run", "explain", "profile", "bisect", "reduce", "doctor")
_CODES = "exit codes: 0 done, 1 something was found (see above), 2 wrong usage or input"


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(BAD_INPUT, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _parser():
    parser = _Parser(prog="dcml", description="A deep-learning compiler: shows, runs, times and checks what it makes of a model.",
                     epilog=_CODES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in COMMANDS:
        module = importlib.import_module(f".{name}", __name__)
        command = commands.add_parser(name, help=module.HELP, description=module.__doc__,
                                      epilog=f"{module.EXAMPLES}\n{_CODES}",
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _run(args):
    """The exit code of a subcommand, whatever it raises about its input."""
    from .. import _core
    try:
        code = args.run(args)
        sys.stdout.flush()
        return code
    except BadInput as error:
        problem = str(error)
    except _core.Error as error:
        problem = f"{args.model}: {error}" if getattr(args, "model", None) else str(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        problem = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except MemoryError:
        problem = "out of memory"
    print(f"dcml {args.command}: error: {one_line(problem)}", file=sys.stderr)
    return BAD_INPUT


def main(argv=None):
    """Runs a command line (default: that of the process) and returns its exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.version:
        from .. import __version__
        print(f"dcml {__version__}")
        return OK
    if not args.command:
        parser.print_help()
        return BAD_INPUT
    try:
        return _run(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # who reads has seen enough; nothing is left to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
