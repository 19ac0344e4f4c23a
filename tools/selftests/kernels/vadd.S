// SPDX-License-Identifier: GPL-2.0 OR MIT
// c[i] = a[i] + b[i] by hand, for work-groups of 64. Arguments: a, b, c.
	.text
	.globl vadd_by_hand
	.p2align 8
	.type vadd_by_hand,@function
vadd_by_hand:
	// s[0:1]: arguments; s2: work-group; v0: work-item (the upper bits are 0 in one dimension)
	s_load_dwordx4 s[4:7], s[0:1], 0x0
	s_load_dwordx2 s[8:9], s[0:1], 0x10
	v_lshl_add_u32 v0, s2, 6, v0
	v_lshlrev_b32_e32 v0, 2, v0
	s_waitcnt lgkmcnt(0)
	global_load_dword v1, v0, s[4:5]
	global_load_dword v2, v0, s[6:7]
	s_waitcnt vmcnt(0)
	v_add_f32_e32 v1, v1, v2
	global_store_dword v0, v1, s[8:9]
	s_endpgm
.Lend:
	.size vadd_by_hand, .Lend-vadd_by_hand

	.rodata
	.p2align 6
	.amdhsa_kernel vadd_by_hand
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_next_free_vgpr 3
		.amdhsa_next_free_sgpr 10
		.amdhsa_kernarg_size 24
#ifdef __gfx90a__
		.amdhsa_accum_offset 4
#endif
	.end_amdhsa_kernel
