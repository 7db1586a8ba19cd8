//! The part of `libz-ng-sys` that `flate2` uses, implemented by zlib-rs.
//!
//! `pingora-core` has `flate2` compress with zlib-ng, which is written in C and built with CMake.
//! `[patch.crates-io]` puts this crate in the place of its bindings: everything compresses with
//! zlib-rs, which is zlib-ng in Rust and writes the same bytes. `flate2` has a feature for zlib-rs,
//! but prefers zlib-ng if both are enabled.
//!
//! The functions are those of `libz-rs-sys`. Only [`z_stream`] is another type: there its callbacks
//! are optional.

#![expect(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "the functions of zlib.h"
)]

use libz_rs_sys::{Bytef, alloc_func, free_func, internal_state, uLong, voidpf};
pub use libz_rs_sys::{
    Z_BLOCK, Z_BUF_ERROR, Z_DATA_ERROR, Z_DEFAULT_STRATEGY, Z_DEFLATED, Z_FINISH, Z_FULL_FLUSH,
    Z_MEM_ERROR, Z_NEED_DICT, Z_NO_FLUSH, Z_OK, Z_PARTIAL_FLUSH, Z_STREAM_END, Z_STREAM_ERROR,
    Z_SYNC_FLUSH, uInt, zlibVersion,
};
use std::ffi::{c_char, c_int};
use std::mem::offset_of;

macro_rules! stream {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// The state of a compression or decompression, as in `zlib.h`.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct z_stream {
            $($(#[$doc])* pub $field: $type,)*
        }

        // an optional function has the size of a function
        const _: () = {
            assert!(size_of::<z_stream>() == size_of::<libz_rs_sys::z_stream>());
            $(assert!(offset_of!(z_stream, $field) == offset_of!(libz_rs_sys::z_stream, $field));)*
        };
    };
}

stream! {
    /// Input.
    next_in: *mut Bytef,
    /// Bytes of it.
    avail_in: uInt,
    /// Bytes read so far.
    total_in: uLong,
    /// Room for output.
    next_out: *mut Bytef,
    /// Bytes of it.
    avail_out: uInt,
    /// Bytes written so far.
    total_out: uLong,
    /// The last error; null if there was none.
    msg: *mut c_char,
    /// zlib's own.
    state: *mut internal_state,
    /// Allocates the state.
    zalloc: alloc_func,
    /// Frees it.
    zfree: free_func,
    /// First argument of both.
    opaque: voidpf,
    /// Guess whether the data is text.
    data_type: c_int,
    /// Checksum of the data.
    adler: uLong,
    /// Unused.
    reserved: uLong,
}

/// Functions with the signatures of `zlib.h`.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of zlib-rs.")]
        ///
        /// # Safety
        /// As in `zlib.h`.
        pub unsafe fn $name(strm: *mut z_stream $(, $argument: $type)*) -> c_int {
            // SAFETY: both streams have the same layout, and the caller keeps zlib.h's rules
            unsafe { libz_rs_sys::$name(strm.cast() $(, $argument)*) }
        }
    )*};
}

functions! {
    deflate(flush: c_int);
    deflateEnd();
    deflateInit2_(level: c_int, method: c_int, window_bits: c_int, mem_level: c_int,
        strategy: c_int, version: *const c_char, stream_size: c_int);
    deflateParams(level: c_int, strategy: c_int);
    deflateReset();
    deflateSetDictionary(dictionary: *const Bytef, length: uInt);
    inflate(flush: c_int);
    inflateEnd();
    inflateInit2_(window_bits: c_int, version: *const c_char, stream_size: c_int);
    inflateReset2(window_bits: c_int);
    inflateSetDictionary(dictionary: *const Bytef, length: uInt);
}
