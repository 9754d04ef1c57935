package gate

import "math"

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// logSumExp is NaN or +inf when the row holds one, and -inf when all of it is -inf.
func logSumExp(row []float32) float64 {
	top := math.Inf(-1)
	for _, x := range row {
		top = math.Max(top, float64(x)) // NaN stays
	}
	if !finite(top) {
		return top
	}
	sum := 0.0
	for _, x := range row {
		sum += math.Exp(float64(x) - top)
	}
	return top + math.Log(sum)
}

// divergence is KL(p‖q) of two rows with their finite log-sum-exps, never below 0: rounding may leave -1e-17 of
// nothing. It is summed as p*(log p - log q) + q - p, whose terms are all at least 0, so that small divergences do not
// drown in cancellation.
func divergence(p []float32, pSum float64, q []float32, qSum float64) float64 {
	kl := 0.0
	for i, x := range p {
		logP, logQ := float64(x)-pSum, float64(q[i])-qSum
		switch {
		case math.IsInf(logP, -1):
			kl += math.Exp(logQ)
		case math.IsInf(logQ, -1):
			return math.Inf(1)
		default:
			kl += term(logP, logQ)
		}
	}
	return kl
}

// term is p*(exp(d) - 1 - d) for d = log q - log p: without cancellation near d = 0, without overflow far from it.
func term(logP, logQ float64) float64 {
	d := logQ - logP
	switch a := math.Abs(d); {
	case a < 1e-3:
		return math.Exp(logP) * d * d / 2 * (1 + d/3*(1+d/4*(1+d/5)))
	case a < 1:
		return math.Exp(logP) * (math.Expm1(d) - d)
	}
	return math.Exp(logQ) - math.Exp(logP)*(1+d)
}

// topTwo returns the indices of the greatest and of the second greatest value, the lower of equal ones first; NaN
// counts as -inf. With one value the second is -1.
func topTwo(row []float32) (top, second int) {
	top, second = -1, -1
	for i, x := range row {
		switch {
		case top < 0 || x > row[top] || row[top] != row[top] && x == x:
			top, second = i, top
		case second < 0 || x > row[second] || row[second] != row[second] && x == x:
			second = i
		}
	}
	return top, second
}

// margin is the distance of the two, +inf when there is no second.
func margin(row []float32, top, second int) float64 {
	if second < 0 {
		return math.Inf(1)
	}
	return float64(row[top]) - float64(row[second])
}

// rmsDifference is the root mean square of b - a; where both are -inf the difference is 0, where one is it is infinite.
func rmsDifference(a, b []float32) float64 {
	sum := 0.0
	for i, x := range a {
		if d := float64(b[i]) - float64(x); x != b[i] {
			sum += d * d
		}
	}
	return math.Sqrt(sum / float64(len(a)))
}
