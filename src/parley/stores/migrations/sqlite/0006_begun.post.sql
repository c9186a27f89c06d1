-- Its place was taken by runs_begun.
DROP INDEX runs_conversation;
