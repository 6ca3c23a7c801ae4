-- Tables, sorting, exceptions, garbage and threads. The argument says how much; "mistake" ends by an exception that nobody handles.
module Main (main) where

import Control.Concurrent
import Control.Exception
import Control.Monad (forM, forM_)
import Data.Bits (shiftR, xor)
import Data.List (foldl', sort)
import qualified Data.Map.Strict as Map
import Data.Word (Word64)
import System.Environment (getArgs)
import System.Exit

newtype Odd = Odd Word64 deriving (Show)
instance Exception Odd

mix :: Word64 -> Word64
mix x = y `xor` (y `shiftR` 29)
  where y = (x `xor` (x `shiftR` 31)) * 0x9e3779b97f4a7c15

checked :: Word64 -> IO Word64
checked n
  | n `mod` 7 == 3 = throwIO (Odd n)
  | otherwise = return (n `div` 2)

work :: Word64 -> Word64 -> IO Word64
work seed n = do
  numbers <- forM [0 .. n - 1] $ \i -> checked i `catch` \(Odd at) -> return (mix at)
  let wordOf i = 'w' : show (mix (seed + i) `mod` (n `div` 4 + 1))
      table = foldl' (\m i -> Map.insertWith (+) (wordOf i) i m) Map.empty [0 .. n - 1]
      garbage = [foldl' xor 0 (sort [mix (x + i) | x <- [1 .. i `mod` 50]]) | i <- [0 .. n - 1]]
      start = foldl' xor (seed + sum numbers) garbage
  evaluate (foldl' (\h (k, v) -> mix (h + v + fromIntegral (length k))) start (Map.toList table))

main :: IO ()
main = do
  [argument] <- getArgs
  if argument == "mistake" then checked 3 >>= print else return ()
  results <- forM [1 .. 4] $ \t -> do
    done <- newEmptyMVar
    _ <- forkOS (work t (2000 * read argument) >>= putMVar done)
    return done
  forM_ results $ \done -> takeMVar done >>= print
  exitWith (ExitFailure 5)
