"""Takes the network from this process and its children, by a filter of system calls.

Needs no right and no namespace, so it works in containers too, where both are refused. Sockets
between processes of a machine (AF_UNIX) and to its kernel (AF_NETLINK) can be opened as before.
Source of the numbers: linux/seccomp.h, linux/filter.h, linux/audit.h and the tables of system calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_MODE_FILTER = 2
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000

# The offsets of `nr`, `arch` and the low half of the first argument in `struct seccomp_data`.
_NUMBER, _ARCH, _ARGUMENT = 0, 4, 16
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06

# Machine -> its number in linux/audit.h, and that of the system call `socket`.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP = 425
_X32 = 0x40000000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install() -> None:
    """Have every call that would open a socket to a network fail with ENETUNREACH, from now on.

    Raises OSError where the kernel refuses the filter, or where the machine is not known.
    """
    known = _MACHINES.get(platform.machine())
    if known is None:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}")
    code = _assembled(*known)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"prctl: {os.strerror(number)}")


def _assembled(machine: int, socket_number: int) -> bytes:
    unreachable, refused = _REFUSE | errno.ENETUNREACH, _REFUSE | errno.EPERM
    # Each: code, how many to skip if true, how many if false, value.
    instructions = (
        (_LOAD, 0, 0, _ARCH),
        # A program for another architecture would have other numbers.
        (_EQUAL, 0, 9, machine),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 7, 0, _X32),
        # Through this one sockets are opened without the call.
        (_EQUAL, 6, 0, _IO_URING_SETUP),
        (_EQUAL, 0, 3, socket_number),
        (_LOAD, 0, 0, _ARGUMENT),
        (_EQUAL, 1, 0, socket.AF_UNIX),
        (_EQUAL, 0, 1, socket.AF_NETLINK),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, unreachable),
        (_RETURN, 0, 0, refused),
    )
    return b"".join(struct.pack("<HBBI", *one) for one in instructions)
