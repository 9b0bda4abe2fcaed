//! Structs that may grow: each says how large its caller knows it to be.

#![allow(unsafe_code, reason = "memory of the caller is read and written here")]

use std::slice;

use crate::failure::Failure;

/// More was never a size.
const MAX_SIZE: usize = 4096;

/// A struct of the interface.
///
/// # Safety
/// It is `repr(C)`, its first field is its size, and any bytes make one.
pub(crate) unsafe trait Growing {
    fn size(&mut self) -> &mut usize;
}

/// Reads a struct of the caller. One that is larger than ours comes from a later
/// version: what we do not know in it must be zero, that is, not asked for.
///
/// # Safety
/// The pointer is NULL, or as many bytes as its first field says can be read.
pub(crate) unsafe fn read<T: Growing>(from: *const T, name: &str) -> Result<T, Failure> {
    // SAFETY: as the caller says.
    let beyond = unsafe { beyond(from, name) }?;
    // SAFETY: those bytes follow what we know, within its size.
    let unknown = unsafe { slice::from_raw_parts(from.cast::<u8>().add(size_of::<T>()), beyond) };
    if unknown.iter().any(|byte| *byte != 0) {
        let message = format!("{name} has a setting that this version of the library does not know");
        return Err(Failure::invalid(message));
    }
    // SAFETY: it is at least so large, and any bytes are a value.
    Ok(unsafe { from.read_unaligned() })
}

/// Fills a struct of the caller, as far as we know it.
///
/// # Safety
/// The pointer is NULL, or as many bytes as its first field says can be read and written.
pub(crate) unsafe fn write<T: Growing>(to: *mut T, mut value: T, name: &str) -> Result<(), Failure> {
    // SAFETY: as the caller says.
    let beyond = unsafe { beyond(to, name) }?;
    *value.size() = size_of::<T>() + beyond;
    // SAFETY: it is at least so large.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// By how many bytes the caller's struct is larger than ours.
///
/// # Safety
/// The pointer is NULL or its first field can be read.
unsafe fn beyond<T: Growing>(at: *const T, name: &str) -> Result<usize, Failure> {
    if at.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: as the caller says.
    let size = unsafe { at.cast::<usize>().read_unaligned() };
    match size.checked_sub(size_of::<T>()) {
        Some(beyond) if size <= MAX_SIZE => Ok(beyond),
        _ => Err(Failure::invalid(format!(
            "{name}->size is {size}; set it to sizeof *{name}, which is {} in this version of the library",
            size_of::<T>()
        ))),
    }
}
