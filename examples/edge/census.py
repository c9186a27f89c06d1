"""A plain program as an agent: it reads a text and prints an answer with a file. It uses no agent library."""

import json
import re
import sys
from collections import Counter

words = Counter(re.findall(r"\w+", sys.stdin.read().lower()))
table = "word,times\n" + "".join(f"{word},{times}\n" for word, times in sorted(words.items()))
answer = {
    "text": f"{words.total()} words, {len(words)} of them different.",
    "artifacts": [{"filename": "words.csv", "content_text": table, "mime_type": "text/csv"}],
}
print(json.dumps(answer))
