"""`tierctl format --formatter-jar`: where the jar for Kafka's own console consumer is."""

import typer

from tierctl.console_consumer import CLASS_NAME, JAR
from tierctl.errors import NotFoundError

_USE = f"""\
CLASSPATH=$(tierctl format --formatter-jar) kafka-console-consumer.sh --bootstrap-server HOST:PORT \\
  --topic __remote_log_metadata --from-beginning --formatter {CLASS_NAME} \\
  --property print.partition=true --property print.all.event.value.fields=true
(From Kafka 4.2 on --property is called --formatter-property.)"""


def print_jar() -> None:
    """The path on stdout, how to use it on stderr; NotFoundError when it was never built."""
    if not JAR.is_file():
        raise NotFoundError(
            f"{JAR} was not built", hint="'make formatter' builds it, and a wheel made after that has it"
        )
    typer.echo(str(JAR))
    typer.echo(_USE, err=True)
