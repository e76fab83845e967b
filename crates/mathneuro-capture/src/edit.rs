//! Edits of a loaded model's weights that last as long as their guard.

use std::fmt;
use std::ops::Deref;

use mathneuro_checkpoint::Checkpoint;
use mathneuro_edit::{EditOptions, EditReport, Operation, apply_selected, check_edit};
use mathneuro_mask::{MaskSet, ParamMask};
use tch::Tensor;

use crate::error::{CaptureError, Result};
use crate::load::kind_of;
use crate::model::Model;

impl Model {
    /// Edits the masked weights in memory until the returned guard is dropped: ablate, measure, restore.
    ///
    /// The model is then, bit for bit, the one that [`edit_checkpoint`](mathneuro_edit::edit_checkpoint) writes and
    /// [`Model::load`] loads: weights are edited and rounded in the checkpoint's dtype and then converted to the model's.
    /// `checkpoint` is the one that the model was loaded from. Time and memory grow with the number of masked weights.
    ///
    /// ```no_run
    /// use mathneuro_capture::{LoadOptions, LogitsToKeep, Model};
    /// use mathneuro_checkpoint::Checkpoint;
    /// use mathneuro_edit::Operation;
    ///
    /// # fn measure(_: &Model) -> f64 { 0.0 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let masks = mathneuro_mask::MaskSet::new(mathneuro_mask::MaskMeta::default());
    /// let checkpoint = Checkpoint::open("SmolLM2-135M-Instruct")?;
    /// let mut model = Model::load(&checkpoint, &LoadOptions::default())?;
    /// let before = measure(&model);
    /// let edited = model.edit(&checkpoint, &masks, Operation::Prune)?;
    /// println!("{} weights pruned", edited.report().totals.changed);
    /// println!("{before} became {}", measure(&edited));
    /// drop(edited); // Every weight is again what it was.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CaptureError::Edit`] for what `edit_checkpoint` refuses: masks of other weights, a weight or a result that is not
    /// finite. [`CaptureError::ParameterNotFound`] and [`CaptureError::ShapeMismatch`] for a tensor of the checkpoint that
    /// the model does not have so. After an error the model is unchanged.
    pub fn edit<'m>(
        &'m mut self,
        checkpoint: &Checkpoint,
        masks: &'m MaskSet,
        operation: Operation,
    ) -> Result<EditedModel<'m>> {
        check_edit(checkpoint, masks, &operation, &EditOptions::default())?;
        let mut edited = EditedModel {
            model: self,
            before: Vec::with_capacity(masks.len()),
            report: EditReport::new(operation.record()?),
        };
        for (name, _, mask) in masks.iter() {
            edited.edit(checkpoint, name, mask, &operation)?;
        }
        Ok(edited)
    }
}

/// A [`Model`] with edited weights, from [`Model::edit`]. Dropping it puts every bit back, also while a panic unwinds.
///
/// It derefs to the model. The model can be used again, and edited again, once it is dropped.
#[must_use = "the weights are restored when this is dropped"]
pub struct EditedModel<'m> {
    model: &'m mut Model,
    before: Vec<Weights<'m>>,
    report: EditReport,
}

/// The masked weights of a parameter.
struct Weights<'m> {
    name: &'m str,
    mask: &'m ParamMask,
    /// One value for each bit of the mask, in order, in the model's dtype.
    values: Tensor,
}

impl<'m> EditedModel<'m> {
    /// What the edit did to each tensor and to all of them, as `edit_checkpoint` reports it.
    pub fn report(&self) -> &EditReport {
        &self.report
    }

    fn edit(
        &mut self,
        checkpoint: &Checkpoint,
        name: &'m str,
        mask: &'m ParamMask,
        operation: &Operation,
    ) -> Result<()> {
        let _no_grad = tch::no_grad_guard();
        let view = checkpoint.tensor(name)?;
        let parameter = self.model.parameter(name, view.shape())?;
        let (bytes, counts) = apply_selected(operation, view, mask)?;
        checkpoint.release(name);
        if let Operation::ReplaceFrom(donor) = operation {
            donor.release(name);
        }
        self.report.add(name, counts);
        if counts.selected == 0 {
            return Ok(());
        }
        let kind = kind_of(name, view.dtype())?;
        let edited = Tensor::f_from_data_size(&bytes, &[counts.selected as i64], kind)?
            .f_to_kind(parameter.kind())?
            .f_to_device(parameter.device())?;
        let index = index(mask, parameter)?;
        // From here on a drop restores this parameter, whatever of it has been written.
        let values = parameter.f_take(&index)?;
        self.before.push(Weights { name, mask, values });
        put(parameter, &index, &edited)
    }

    fn restore(&self) -> Result<()> {
        let _no_grad = tch::no_grad_guard();
        for Weights { name, mask, values } in &self.before {
            let parameter = self.model.parameters.get(*name);
            let parameter =
                parameter.ok_or_else(|| CaptureError::ParameterNotFound((*name).to_owned()))?;
            let index = index(mask, parameter)?;
            put(parameter, &index, values)?;
        }
        Ok(())
    }
}

/// Writes into the parameter's storage, which the layers share.
fn put(parameter: &Tensor, index: &Tensor, values: &Tensor) -> Result<()> {
    // The result is the parameter itself.
    let _ = parameter.shallow_clone().f_put_(index, values, false)?;
    Ok(())
}

/// The places of a mask's bits, on the parameter's device.
fn index(mask: &ParamMask, parameter: &Tensor) -> Result<Tensor> {
    let places: Vec<i64> = mask.iter_ones().map(|place| place as i64).collect();
    Ok(Tensor::f_from_slice(&places)?.f_to_device(parameter.device())?)
}

impl Deref for EditedModel<'_> {
    type Target = Model;

    fn deref(&self) -> &Model {
        self.model
    }
}

impl Drop for EditedModel<'_> {
    fn drop(&mut self) {
        // Only a device that has failed refuses this. A model that is half edited must not pass for the original.
        if let Err(error) = self.restore()
            && !std::thread::panicking()
        {
            panic!("the weights of an edited model cannot be restored: {error}");
        }
    }
}

impl fmt::Debug for EditedModel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EditedModel")
            .field("model", &self.model)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}
