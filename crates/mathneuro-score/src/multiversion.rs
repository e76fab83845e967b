//! One generic function, compiled once for each instruction set and chosen at run time.

/// Defines a function that calls `$body`, an `#[inline(always)]` function of the same arguments, compiled for the
/// instruction set in use.
macro_rules! multiversion {
    (
        $(#[$about:meta])*
        fn $name:ident<E: Element>($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $body:ident
    ) => {
        $(#[$about])*
        fn $name<E: Element>($($argument: $type),*) $(-> $result)? {
            /// # Safety
            /// The machine must have AVX-512 F and BW.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw")]
            unsafe fn avx512<E: Element>($($argument: $type),*) $(-> $result)? {
                $body::<E>($($argument),*)
            }

            /// # Safety
            /// The machine must have AVX2 and F16C.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,f16c")]
            unsafe fn avx2<E: Element>($($argument: $type),*) $(-> $result)? {
                $body::<E>($($argument),*)
            }

            match mathneuro_mask::Isa::active() {
                // SAFETY: `active` names what this machine has: AVX-512 F and BW among others.
                #[cfg(target_arch = "x86_64")]
                mathneuro_mask::Isa::Avx512 => unsafe { avx512::<E>($($argument),*) },
                // SAFETY: `active` names what this machine has: AVX2 and F16C among others.
                #[cfg(target_arch = "x86_64")]
                mathneuro_mask::Isa::Avx2 => unsafe { avx2::<E>($($argument),*) },
                _ => $body::<E>($($argument),*),
            }
        }
    };
}
pub(crate) use multiversion;
