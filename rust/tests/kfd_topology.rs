// SPDX-License-Identifier: GPL-2.0

//! The text of topology nodes.

use kernel::prelude::*;

use crate::{
    gpu::silicon::Silicon,
    hw::{
        asic::{
            AsicDesc,
            GFX906,
            GFX90A, //
        },
        shader::ComputeUnits, //
    },
    kapi::sysinfo::CpuCache,
    kfd::topology::{
        facts::{
            CpuFacts,
            GpuFacts,
            SystemFacts, //
        },
        model::{
            nodes,
            system_properties,
            Node, //
        },
        text::Lines, //
    },
};

const SYSTEM: SystemFacts = SystemFacts {
    cpu_clock_mhz: 2600,
    amd_cpu: false,
};

fn cpu(numa_node: i32) -> CpuFacts {
    CpuFacts {
        numa_node,
        cores: 2,
        core_id_base: 16,
        memory: 0x8000_0000,
        caches: KVec::new(),
    }
}

fn silicon(asic: &AsicDesc, count: u32) -> Silicon {
    Silicon {
        units: ComputeUnits::even(&asic.shader, count),
        mec_firmware: 70,
        sdma_firmware: 8,
        engine_clock_mhz: 1700,
        memory_clock_mhz: 1600,
    }
}

fn gpu(gpu_id: u32) -> GpuFacts {
    GpuFacts {
        gpu_id,
        asic: &GFX90A,
        vram: 0x4000_0000,
        large_bar: true,
        vendor_id: 0x1002,
        device_id: 0x740f,
        location_id: 0x100,
        domain: 0,
        revision: 1,
        render_minor: 128,
        cp_queues: 24,
        num_gws: 64,
        numa_node: 0,
        bandwidth: 15753,
        sends_atomics: true,
        completes_atomics: false,
        silicon: silicon(&GFX90A, 104),
    }
}

fn text(file: &KVVec<u8>) -> &str {
    core::str::from_utf8(file).unwrap_or("not UTF-8")
}

/// The value of `key`.
fn value(file: &KVVec<u8>, key: &str) -> Option<u64> {
    text(file).lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.parse().ok())?
    })
}

fn one_gpu() -> Result<KVec<Node>> {
    nodes(&SYSTEM, &[cpu(0)], &[gpu(0x1234)])
}

const CPU_NODE: &str = "cpu_cores_count 2
simd_count 0
mem_banks_count 1
caches_count 0
io_links_count 1
p2p_links_count 0
cpu_core_id_base 16
simd_id_base 0
max_waves_per_simd 0
lds_size_in_kb 0
gds_size_in_kb 0
num_gws 0
wave_front_size 0
array_count 0
simd_arrays_per_engine 0
cu_per_simd_array 0
simd_per_cu 0
max_slots_scratch_cu 0
gfx_target_version 0
vendor_id 0
device_id 0
location_id 0
domain 0
drm_render_minor 0
hive_id 0
num_sdma_engines 0
num_sdma_xgmi_engines 0
num_sdma_queues_per_engine 0
num_cp_queues 0
cwsr_size 0
ctl_stack_size 0
max_engine_clk_ccompute 2600
";

const GPU_NODE: &str = "cpu_cores_count 0
simd_count 416
mem_banks_count 1
caches_count 217
io_links_count 1
p2p_links_count 0
cpu_core_id_base 0
simd_id_base 2147487744
max_waves_per_simd 8
lds_size_in_kb 64
gds_size_in_kb 0
num_gws 64
wave_front_size 64
array_count 8
simd_arrays_per_engine 1
cu_per_simd_array 14
simd_per_cu 4
max_slots_scratch_cu 32
gfx_target_version 90010
vendor_id 4098
device_id 29711
location_id 256
domain 0
drm_render_minor 128
hive_id 0
num_sdma_engines 2
num_sdma_xgmi_engines 0
num_sdma_queues_per_engine 8
num_cp_queues 24
cwsr_size 63508480
ctl_stack_size 36864
max_engine_clk_fcompute 1700
local_mem_size 0
fw_version 70
capability 742400000
capability2 0
debug_prop 0
sdma_fw_version 8
unique_id 0
num_xcc 1
max_engine_clk_ccompute 2600
";

#[kunit_tests(rkfd_kfd_topology)]
mod topology {
    use super::*;

    #[test]
    fn cpu_node_text() -> Result {
        let nodes = one_gpu()?;
        let node = nodes.first().ok_or(EINVAL)?;
        assert_eq!(text(&node.properties), CPU_NODE);
        assert_eq!((text(&node.gpu_id), text(&node.name)), ("0\n", "\n"));
        let bank = node.mem_banks.first().ok_or(EINVAL)?;
        assert_eq!(
            text(bank),
            "heap_type 0\nsize_in_bytes 2147483648\nflags 0\nwidth 64\nmem_clk_max 0\n"
        );
        Ok(())
    }

    #[test]
    fn gpu_node_text() -> Result {
        let nodes = one_gpu()?;
        let node = nodes.get(1).ok_or(EINVAL)?;
        assert_eq!(text(&node.properties), GPU_NODE);
        assert_eq!(
            (text(&node.gpu_id), text(&node.name)),
            ("4660\n", "aldebaran\n")
        );
        let bank = node.mem_banks.first().ok_or(EINVAL)?;
        assert_eq!(
            text(bank),
            "heap_type 1\nsize_in_bytes 1073741824\nflags 0\nwidth 4096\nmem_clk_max 1600\n"
        );
        Ok(())
    }

    #[test]
    fn counts_are_those_of_the_lists() -> Result {
        for node in one_gpu()? {
            let lists = [
                ("mem_banks_count", node.mem_banks.len()),
                ("caches_count", node.caches.len()),
                ("io_links_count", node.io_links.len()),
                ("p2p_links_count", node.p2p_links.len()),
            ];
            for (key, len) in lists {
                assert_eq!(value(&node.properties, key), u64::try_from(len).ok());
            }
        }
        Ok(())
    }

    #[test]
    fn links_name_both_ends_and_what_they_carry() -> Result {
        let nodes = one_gpu()?;
        let to_gpu = nodes
            .first()
            .and_then(|n| n.io_links.first())
            .ok_or(EINVAL)?;
        // Enabled, not coherent, no atomics.
        assert_eq!(
            text(to_gpu),
            "type 2\nversion_major 0\nversion_minor 0\nnode_from 0\nnode_to 1\nweight 20\n\
             min_latency 0\nmax_latency 0\nmin_bandwidth 15753\nmax_bandwidth 15753\n\
             recommended_transfer_size 0\nrecommended_sdma_engine_id_mask 0\nflags 15\n"
        );
        let to_cpu = nodes
            .get(1)
            .and_then(|n| n.io_links.first())
            .ok_or(EINVAL)?;
        assert_eq!(value(to_cpu, "node_from"), Some(1));
        assert_eq!(value(to_cpu, "node_to"), Some(0));
        assert_eq!(value(to_cpu, "flags"), Some(1));
        Ok(())
    }

    #[test]
    fn without_a_large_bar_the_cpu_has_no_link_to_the_gpu() -> Result {
        let small = GpuFacts {
            large_bar: false,
            ..gpu(1)
        };
        let nodes = nodes(&SYSTEM, &[cpu(0)], &[small])?;
        let [host, device] = nodes.as_slice() else {
            return Err(EINVAL);
        };
        assert!(host.io_links.is_empty());
        assert_eq!(device.io_links.len(), 1);
        let bank = device.mem_banks.first().ok_or(EINVAL)?;
        assert_eq!(value(bank, "heap_type"), Some(2));
        Ok(())
    }

    #[test]
    fn every_gpu_hangs_on_its_numa_node() -> Result {
        let far = GpuFacts {
            numa_node: 3,
            ..gpu(2)
        };
        let nodes = nodes(&SYSTEM, &[cpu(0), cpu(3)], &[gpu(1), far])?;
        let target = |index: usize| {
            let link = nodes.get(index)?.io_links.first()?;
            Some((value(link, "node_from")?, value(link, "node_to")?))
        };
        assert_eq!(target(2), Some((2, 0)));
        assert_eq!(target(3), Some((3, 1)));
        // CPU to CPU, then CPU to GPU.
        let second = nodes.get(1).ok_or(EINVAL)?;
        let ends = second.io_links.iter().map(|link| value(link, "node_to"));
        assert!(ends.eq([Some(0), Some(3)]));
        let kinds = second.io_links.iter().map(|link| value(link, "type"));
        assert!(kinds.eq([Some(5), Some(2)]));
        Ok(())
    }

    #[test]
    fn processor_ids_of_gpus_do_not_overlap() -> Result {
        let nodes = nodes(&SYSTEM, &[cpu(0)], &[gpu(1), gpu(2)])?;
        let base = |index: usize| value(&nodes.get(index)?.properties, "simd_id_base");
        assert_eq!(base(1), Some(0x8000_1000));
        assert_eq!(base(2), Some(0x8000_1000 + 104));
        Ok(())
    }

    #[test]
    fn caches_are_listed_by_the_units_that_share_them() -> Result {
        let nodes = one_gpu()?;
        let caches = &nodes.get(1).ok_or(EINVAL)?.caches;
        let count = |level: u64, kind: u64, size: u64| {
            caches
                .iter()
                .filter(|c| value(c, "level") == Some(level))
                .filter(|c| value(c, "type") == Some(kind))
                .filter(|c| value(c, "size") == Some(size))
                .count()
        };
        // 8 engines of 13 units; pairs of units share the scalar caches.
        assert_eq!((count(1, 10, 32), count(2, 9, 8192)), (56, 1));
        assert_eq!(count(1, 9, 16), 104 + 56);
        for cache in caches {
            let last = text(cache).lines().last().unwrap_or_default();
            assert!(last.starts_with("sibling_map 1") && !last.ends_with(','));
        }
        // The last scalar cache of an engine has one unit.
        let alone = caches.get(104 + 6).ok_or(EINVAL)?;
        assert_eq!(value(alone, "processor_id_low"), Some(0x8000_1000 + 12));
        assert!(text(alone).contains("sibling_map 1,0,0"));
        Ok(())
    }

    #[test]
    fn caches_of_cpus_are_listed() -> Result {
        let shared = CpuCache {
            processor: 16,
            level: 3,
            size: 32 << 20,
            line: 64,
            lines_per_tag: 1,
            ways: 16,
            data: true,
            instructions: true,
            sharers: core::array::from_fn(|byte| if byte == 1 { 0b101 } else { 0 }),
        };
        let code = CpuCache {
            level: 1,
            size: 48 << 10,
            data: false,
            ..shared
        };
        let mut with_caches = cpu(0);
        for cache in [shared, code, CpuCache { level: 0, ..code }] {
            with_caches.caches.push(cache, GFP_KERNEL)?;
        }
        let nodes = nodes(&SYSTEM, &[with_caches], &[])?;
        let node = nodes.first().ok_or(EINVAL)?;
        // The one of level 0 is left out.
        assert_eq!(value(&node.properties, "caches_count"), Some(2));
        assert_eq!(node.caches.len(), 2);
        let first = text(node.caches.first().ok_or(EINVAL)?);
        let head = "processor_id_low 16\nlevel 3\nsize 32768\ncache_line_size 64\n\
                    cache_lines_per_tag 1\nassociation 16\nlatency 0\ntype 7\n\
                    sibling_map 0,0,0,0,0,0,0,0,1,0,1,0,";
        assert!(first.starts_with(head));
        let bits = first.split_once("sibling_map ").ok_or(EINVAL)?.1;
        assert_eq!(bits.trim_end().split(',').count(), 256);
        let second = node.caches.get(1).ok_or(EINVAL)?;
        for (key, want) in [("level", 1), ("size", 48), ("type", 6)] {
            assert_eq!(value(second, key), Some(want));
        }
        Ok(())
    }

    #[test]
    fn units_that_are_fused_off_have_no_caches() -> Result {
        // Engine 0 has lost units 0 to 2 of 16, engine 2 all.
        let holed = Silicon {
            units: ComputeUnits::without(&GFX906.shader, |engine| match engine {
                0 => 0b111,
                2 => u32::MAX,
                _ => 0,
            }),
            ..silicon(&GFX906, 64)
        };
        let vega = GpuFacts {
            asic: &GFX906,
            silicon: holed,
            ..gpu(5)
        };
        let nodes = nodes(&SYSTEM, &[cpu(0)], &[vega])?;
        let node = nodes.get(1).ok_or(EINVAL)?;
        assert_eq!(value(&node.properties, "simd_count"), Some(4 * (13 + 32)));
        let of = |kind, size| {
            node.caches.iter().filter(move |c| {
                value(c, "level") == Some(1)
                    && value(c, "type") == Some(kind)
                    && value(c, "size") == Some(size)
            })
        };
        // The vector caches are of one unit each.
        let first = of(9, 16).next().ok_or(EINVAL)?;
        assert_eq!(value(first, "processor_id_low"), Some(0x8000_1000 + 3));
        // Three units share an instruction cache; the first three are gone, and all of engine 2.
        assert_eq!(of(10, 32).count(), 5 + 6 + 6);
        let first = of(10, 32).next().ok_or(EINVAL)?;
        assert_eq!(value(first, "processor_id_low"), Some(0x8000_1000 + 3));
        // The map of the L2 cache counts from the first unit that works.
        let l2 = node
            .caches
            .iter()
            .find(|c| value(c, "level") == Some(2))
            .ok_or(EINVAL)?;
        assert_eq!(value(l2, "processor_id_low"), Some(0x8000_1000 + 3));
        let map = text(l2).lines().last().unwrap_or_default();
        let bits = map.bytes().filter(|byte| *byte == b'1').count();
        assert_eq!(bits, 13 + 32);
        Ok(())
    }

    #[test]
    fn another_asic_gives_another_node() -> Result {
        let vega = GpuFacts {
            asic: &GFX906,
            silicon: silicon(&GFX906, 60),
            device_id: 0x66a1,
            revision: 0,
            ..gpu(5)
        };
        let nodes = nodes(&SYSTEM, &[cpu(0)], &[vega])?;
        let node = nodes.get(1).ok_or(EINVAL)?;
        assert_eq!(text(&node.name), "vega20\n");
        for (key, want) in [
            ("simd_count", 240),
            ("array_count", 4),
            ("max_waves_per_simd", 10),
            ("gfx_target_version", 90006),
            ("cwsr_size", 0x13f_1000),
            ("ctl_stack_size", 0x5000),
            ("capability", 0x0c00_2000),
        ] {
            assert_eq!(value(&node.properties, key), Some(want));
        }
        Ok(())
    }

    #[test]
    fn trap_handlers_are_told_of_firmware_that_serves_them() -> Result {
        const DEBUG_FIRMWARE: u64 = 1 << 29;
        for (asic, first) in [(&GFX90A, 51), (&GFX906, 459)] {
            for (mec_firmware, want) in [
                (0, 0),
                (first - 1, 0),
                (first, DEBUG_FIRMWARE),
                (first + 1, DEBUG_FIRMWARE),
            ] {
                let one = GpuFacts {
                    asic,
                    silicon: Silicon {
                        mec_firmware,
                        ..silicon(asic, 60)
                    },
                    ..gpu(5)
                };
                let nodes = nodes(&SYSTEM, &[cpu(0)], &[one])?;
                let node = nodes.get(1).ok_or(EINVAL)?;
                let bits = value(&node.properties, "capability").ok_or(EINVAL)?;
                assert_eq!((mec_firmware, bits & DEBUG_FIRMWARE), (mec_firmware, want));
            }
        }
        Ok(())
    }

    #[test]
    fn no_gpu_leaves_the_cpus() -> Result {
        let nodes = nodes(&SYSTEM, &[cpu(0)], &[])?;
        let [node] = nodes.as_slice() else {
            return Err(EINVAL);
        };
        assert_eq!(value(&node.properties, "io_links_count"), Some(0));
        assert_eq!(
            text(&system_properties()?),
            "platform_oem 0\nplatform_id 0\nplatform_rev 1\n"
        );
        Ok(())
    }

    #[test]
    fn a_file_ends_at_one_page() -> Result {
        let mut file = Lines::new();
        // 16 bytes a line.
        for _ in 0..256 {
            file.property("abcdefghijklm", 1u32)?;
        }
        assert_eq!(file.property("a", 1u32), Err(EFBIG));
        assert_eq!(file.finish().len(), 4096);
        Ok(())
    }
}
