"""One Hypothesis profile for every machine: no deadlines, and a line that replays a failure."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "endive",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("endive")
