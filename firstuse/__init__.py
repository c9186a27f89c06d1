"""Follows the README to the letter, in an empty folder, and says where what happens is not what it shows."""
