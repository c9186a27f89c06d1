from docsite.reference import write

write()
