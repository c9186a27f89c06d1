"""For tests, ours and yours: contract suites for every port, a real server in a few lines, a checker of logs."""
