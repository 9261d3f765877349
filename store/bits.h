/* Stored numbers as float32, exactly. */
#ifndef NPUD_BITS_H
#define NPUD_BITS_H

#include <stdint.h>
#include <string.h>

static inline float f32_from_bits(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static inline float f32_from_bf16(uint16_t upper)
{
	return f32_from_bits((uint32_t)upper << 16);
}

/*
 * Moving the fields is exact for normal numbers. A half's denormal is read as if it had the implicit
 * one, which the subtraction takes away again, exactly. Selects rather than branches, so that the loops
 * around it can become vector code.
 */
static inline float f32_from_f16(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half & 0x7c00;
	uint32_t normal = ((uint32_t)(half & 0x7fff) << 13) + (112u << 23), endless = normal + (112u << 23);
	float unbiased = f32_from_bits(normal + (1u << 23)) - 0x1p-14f;
	uint32_t denormal;

	memcpy(&denormal, &unbiased, sizeof denormal);
	return f32_from_bits(sign | (exponent == 0x7c00 ? endless : exponent == 0 ? denormal : normal));
}

#endif
