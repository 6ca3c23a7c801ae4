# Tables, sorting, handled errors, garbage, matrices. WORK says how much.
mix <- function(x) (x * 7919 + 104729) %% 1000003
work <- function(seed, n) {
  h <- seed
  words <- new.env()
  for (i in seq_len(n)) {
    word <- paste0("w", mix(seed + i) %% (n %/% 4 + 1))
    words[[word]] <- (if (is.null(words[[word]])) 0 else words[[word]]) + i
    h <- (h + tryCatch(if (i %% 7 == 3) stop("odd") else i %/% 2, error = function(e) mix(i))) %% 1000003
    h <- (h + sum(sort(mix(seq_len(i %% 50) + i)))) %% 1000003
  }
  gc()
  for (k in sort(ls(words), method = "radix")) h <- mix(h + words[[k]] + nchar(k))
  h
}
n <- 200 * as.integer(Sys.getenv("WORK"))
for (t in 1:4) print(work(t, n))
m <- matrix(mix(1:2500) %% 17, 50) + diag(50) * 100
print(round(sum(solve(m, m %*% m)), 6))
print(summary(lm(y ~ x, data.frame(x = 1:100, y = mix(1:100)))))
s <- paste(sprintf("%d;%d", 1:500, mix(1:500)), collapse = "\n")
print(sum(read.csv(text = s, sep = ";", header = FALSE)$V2))
quit(status = 5)
