from parley_edge.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
