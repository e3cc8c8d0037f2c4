"""The script that spark-submit starts: runs the tierctl command that follows it on the line."""

if __name__ == "__main__":
    from tierctl.cli.main import main

    main()
