"""Any program can be an agent: this one reads a text, and prints an answer with a file. It knows nothing of agents."""

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
