from dev.docsite.reference import write

write()
