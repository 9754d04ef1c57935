package quant

// autoRound reads what auto-round writes of itself in its exports as GPTQ and AWQ, whose tensors are those of the
// format. It returns the fields that say how it worked, for others.
func autoRound(f *fields) (harmless string) {
	f.only("data_type", "", `"int"`)
	f.only("act_bits", "inputs are not quantised in this format", "16")
	return ` amp autoround_version batch_size enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input
		gradient_accumulate_steps iters low_gpu_mem_usage lr minmax_lr nsamples provider quant_block_list scale_dtype seqlen
		to_quant_block_names`
}

// newAutoRound reads the configuration of auto-round's own export, whose packing_format says how its tensors are
// packed; nil where that is none of GPTQ or AWQ.
func newAutoRound(f *fields) importer {
	switch f.text("packing_format", "") {
	case "auto_round:auto_gptq":
		return newGPTQ(f)
	case "auto_round:auto_awq":
		return newAWQ(f)
	}
	return nil
}
