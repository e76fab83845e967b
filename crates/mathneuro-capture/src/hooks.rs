//! Hook sites: where a forward pass shows its activations.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use tch::Tensor;

use crate::error::Result;

/// Something that looks at activations while the model runs.
pub trait Hook {
    /// Called at each hook site with the input of the linear layers that read it.
    ///
    /// `input` is `[total_tokens, in_features]` in the model's dtype; `segments` are the ranges of the texts in
    /// it. The tensor belongs to the forward pass: keep what is needed of it, not the tensor.
    ///
    /// # Errors
    /// An error ends the forward pass.
    fn on_site(&mut self, site: &str, input: &Tensor, segments: &[Range<usize>]) -> Result<()>;

    /// Called once after each forward pass.
    ///
    /// # Errors
    /// An error ends the forward pass.
    fn after_batch(&mut self, _segments: &[Range<usize>]) -> Result<()> {
        Ok(())
    }
}

type Shared = Rc<RefCell<dyn Hook>>;

/// The hooks that are attached to a model.
#[derive(Default)]
pub(crate) struct Hooks {
    attached: RefCell<Vec<Shared>>,
}

impl Hooks {
    pub(crate) fn is_empty(&self) -> bool {
        self.attached.borrow().is_empty()
    }

    pub(crate) fn on_site(
        &self,
        site: &str,
        input: &Tensor,
        segments: &[Range<usize>],
    ) -> Result<()> {
        for hook in self.attached.borrow().iter() {
            hook.borrow_mut().on_site(site, input, segments)?;
        }
        Ok(())
    }

    pub(crate) fn after_batch(&self, segments: &[Range<usize>]) -> Result<()> {
        for hook in self.attached.borrow().iter() {
            hook.borrow_mut().after_batch(segments)?;
        }
        Ok(())
    }

    pub(crate) fn attach<H: Hook + 'static>(&self, hook: H) -> HookGuard<'_, H> {
        let hook = Rc::new(RefCell::new(hook));
        self.attached.borrow_mut().push(hook.clone());
        HookGuard {
            hooks: self,
            hook: Some(hook),
        }
    }

    fn detach<H: Hook + 'static>(&self, hook: &Rc<RefCell<H>>) {
        // Compared by address: the list holds the same hook behind a trait object.
        let address = Rc::as_ptr(hook).cast::<()>();
        self.attached
            .borrow_mut()
            .retain(|other| Rc::as_ptr(other).cast::<()>() != address);
    }
}

/// A hook at work. Dropping the session removes the hook from the model.
#[must_use = "the hook is removed when the session is dropped"]
pub struct HookGuard<'m, H: Hook + 'static> {
    hooks: &'m Hooks,
    hook: Option<Rc<RefCell<H>>>,
}

impl<H: Hook + 'static> HookGuard<'_, H> {
    /// Removes the hook from the model and gives it back.
    pub fn finish(mut self) -> H {
        let hook = self
            .hook
            .take()
            .expect("the hook is there until the session ends");
        self.hooks.detach(&hook);
        match Rc::try_unwrap(hook) {
            Ok(hook) => hook.into_inner(),
            Err(_) => unreachable!("only the model's list, which was left, held another reference"),
        }
    }

    /// Looks at the hook while it is attached.
    pub fn with<T>(&self, look: impl FnOnce(&H) -> T) -> T {
        look(
            &self
                .hook
                .as_ref()
                .expect("the hook is there until the session ends")
                .borrow(),
        )
    }
}

impl<H: Hook + 'static> Drop for HookGuard<'_, H> {
    fn drop(&mut self) {
        if let Some(hook) = self.hook.take() {
            self.hooks.detach(&hook);
        }
    }
}
