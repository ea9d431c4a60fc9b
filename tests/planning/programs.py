"""Small programs in HLO, written by hand, whose costs can be worked out."""

LOOP = """HloModule step, is_scheduled=true

FileNames
1 "/opt/site-packages/flax/nnx/norm.py"
2 "/opt/site-packages/transduce/model/layers.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=2 function_name_id=1 line=59 end_line=59 column=8 end_column=8}
2 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=8 end_column=8}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%body (state: (s32[], bf16[8,256,1024])) -> (s32[], bf16[8,256,1024]) {
  %state = (s32[]{:T(128)}, bf16[8,256,1024]{2,1,0:T(8,128)(2,1)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%state), index=0
  %x = bf16[8,256,1024]{2,1,0:T(8,128)(2,1)} get-tuple-element(%state), index=1
  %dense = bf16[8,256,1024]{2,1,0:T(8,128)(2,1)} fusion(%x), kind=kOutput, calls=%add, \
metadata={op_name="jit(step)/dense" stack_frame_id=2}, \
backend_config={"window_config":{"estimated_cycles":"1000"}}
  %unknown = s32[] fusion(%i), kind=kLoop, calls=%add, \
backend_config={"window_config":{"estimated_cycles":"9223372036854775807"}}
  ROOT %out = (s32[]{:T(128)}, bf16[8,256,1024]{2,1,0:T(8,128)(2,1)}) tuple(%unknown, %dense)
}

%condition (state.1: (s32[], bf16[8,256,1024])) -> pred[] {
  %bound = s32[]{:T(128)} constant(6)
  %state.1 = (s32[]{:T(128)}, bf16[8,256,1024]{2,1,0:T(8,128)(2,1)}) parameter(0)
  %i.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  ROOT %less = pred[]{:T(512)} compare(%i.1, %bound), direction=LT
}

ENTRY %main (x.1: bf16[8,256,1024]) -> f32[1000] {
  %x.1 = bf16[8,256,1024]{2,1,0:T(8,128)(2,1)} parameter(0), metadata={op_name="batch"}
  %zero = s32[]{:T(128)} constant(0)
  %begin = (s32[]{:T(128)}, bf16[8,256,1024]{2,1,0:T(8,128)(2,1)}) tuple(%zero, %x.1)
  %loop = (s32[]{:T(128)}, bf16[8,256,1024]{2,1,0:T(8,128)(2,1)}) while(%begin), \
condition=%condition, body=%body
  %y = bf16[8,256,1024]{2,1,0:T(8,128)(2,1)} get-tuple-element(%loop), index=1
  %grad = f32[1000]{0:T(1024)} fusion(%y), kind=kLoop, calls=%add, \
metadata={op_name="jit(step)/grad" stack_frame_id=1}, \
backend_config={"window_config":{"estimated_cycles":"4000"}}
  %started = f32[1000]{0:T(1024)} all-reduce-start(%grad), replica_groups={{0,1},{2,3}}, \
to_apply=%add, metadata={op_name="jit(step)/sum" stack_frame_id=1}
  %meanwhile = f32[1000]{0:T(1024)} fusion(%grad), kind=kLoop, calls=%add, \
backend_config={"window_config":{"estimated_cycles":"500"}}
  ROOT %done = f32[1000]{0:T(1024)} all-reduce-done(%started)
}
"""

KERNEL = """HloModule kernel, is_scheduled=true

ENTRY %main (q: bf16[6,8,1024,64]) -> bf16[6,8,1024,64] {
  %q = bf16[6,8,1024,64]{3,2,1,0:T(8,128)(2,1)} parameter(0)
  %k = bf16[6,8,2048,64]{3,2,1,0:T(8,128)(2,1)} parameter(1)
  %mask = s8[1,1,1]{2,1,0} constant({...})
  %iota.q_sequence_ref = s32[1024,128]{1,0} iota(), iota_dimension=0
  %splash_mha_fwd_residuals.3 = (bf16[6,8,1024,64]{3,2,1,0}, f32[6,8,1024,128]{3,2,1,0}) \
custom-call(%mask, %q, %k, %k), custom_call_target="tpu_custom_call", \
frontend_attributes={kernel_metadata={
"xprof_metadata":"{\\"block_q\\": 512}"
}}, metadata={op_name="pallas_call"}
  %splash_mha_dq.1 = bf16[6,8,1024,64]{3,2,1,0} \
custom-call(%q, %k, %k, %iota.q_sequence_ref), custom_call_target="tpu_custom_call"
  ROOT %other = bf16[6,8,1024,64]{3,2,1,0} custom-call(%q), custom_call_target="tpu_custom_call"
}
"""

FUSED = """HloModule kernel, is_scheduled=true

ENTRY %main (q: bf16[6,8,64,256]) -> bf16[6,8,128,64] {
  %q = bf16[6,8,64,256]{3,2,1,0} parameter(0)
  %k = bf16[6,8,64,128]{3,2,1,0} parameter(1)
  ROOT %splash_mha_dkv.2 = (bf16[6,1,8,256,64]{4,3,2,1,0}, bf16[6,8,128,64]{3,2,1,0}, \
bf16[6,8,128,64]{3,2,1,0}) custom-call(%q, %k, %k), custom_call_target="tpu_custom_call"
}
"""
