"""Package names of the organisation contract (001): each module exports the Parley code that does its work. Run it with
`python -m a2a_server.run`."""
