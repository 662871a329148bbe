"""The transaction coordinator as a machine: transactional ids, and the transactions they run."""
