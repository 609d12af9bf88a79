"""Models as programs of `jax.export`, with the sizes that they hold for."""
