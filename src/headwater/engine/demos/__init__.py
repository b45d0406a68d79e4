"""Stories that `headwater demo` tells with real parts, each in a lake of its own."""
