"""What a user can get wrong."""


class UserError(ValueError):
    """A wrong argument, field or file.

    The message is one line that says what is wrong, where, and what is allowed; the command line prints it
    without a traceback.
    """
